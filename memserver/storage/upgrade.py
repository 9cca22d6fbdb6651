"""Runs alembic. Apart from `migrate`, since importing it takes half a second that most starts can spare."""

import time
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, pool, text
from sqlalchemy.exc import DBAPIError, OperationalError

from memserver.storage.checks import check_encoding, check_server
from memserver.storage.failures import translate_errors

LOCK_SECONDS = 0.5
"""What a migration waits for one lock: less than Postgres does before it ends a deadlock by failing one of two, which may be a
server's, and much less than the three seconds after which a server's statement gives up."""
LOCK_PAUSE = 1
LOCK_TRIES = 60
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def upgrade(owner_url: str, migrations: Path) -> None:
    """Bring the database to the newest schema, alone: an advisory lock keeps others waiting.

    Servers may be at work meanwhile. A lock that can't be had soon is waited for by nobody, since all that come later would
    wait behind it; then all is tried again, a while later.

    Raises:
        DatabaseError: a lock was not to be had, tried again and again; nothing has changed.
    """
    with translate_errors():
        check_encoding(owner_url)  # first, since SQLAlchemy doesn't take the bytes of SQL_ASCII

    def connect() -> psycopg.Connection:
        # Nothing prepared: a pooler may give each transaction another connection.
        return psycopg.connect(owner_url, prepare_threshold=None)

    # The driver reads the URL: SQLAlchemy doesn't know one with several hosts.
    engine = create_engine("postgresql+psycopg://", poolclass=pool.NullPool, creator=connect)
    try:
        for tried in range(1, LOCK_TRIES + 1):
            try:
                _upgrade(engine, migrations)
                return
            except OperationalError as error:
                if not isinstance(error.orig, _IN_THE_WAY) or tried == LOCK_TRIES:
                    raise
            time.sleep(LOCK_PAUSE)
    except DBAPIError as error:
        with translate_errors():
            if isinstance(error.orig, psycopg.Error):
                raise error.orig from error
        raise
    finally:
        engine.dispose()


def _upgrade(engine: Engine, migrations: Path) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtextextended('memserver migrate', 0))")
        )
        connection.execute(text(f"SET LOCAL lock_timeout = {round(1000 * LOCK_SECONDS)}"))
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        check_server(driver)
        config = Config()
        config.set_main_option("script_location", str(migrations))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
