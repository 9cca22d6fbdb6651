"""Runs alembic. Apart from `migrate`, since importing it takes half a second that most starts can spare."""

from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, pool, text
from sqlalchemy.exc import DBAPIError

from memserver.storage.checks import check_encoding, check_server
from memserver.storage.failures import translate_errors


def upgrade(owner_url: str, migrations: Path) -> None:
    """Bring the database to the newest schema, alone: an advisory lock keeps others waiting."""
    with translate_errors():
        check_encoding(owner_url)  # first, since SQLAlchemy doesn't take the bytes of SQL_ASCII

    def connect() -> psycopg.Connection:
        # Nothing prepared: a pooler may give each transaction another connection.
        return psycopg.connect(owner_url, prepare_threshold=None)

    # The driver reads the URL: SQLAlchemy doesn't know one with several hosts.
    engine = create_engine("postgresql+psycopg://", poolclass=pool.NullPool, creator=connect)
    try:
        with engine.begin() as connection:
            connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended('memserver migrate', 0))")
            )
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            check_server(driver)
            config = Config()
            config.set_main_option("script_location", str(migrations))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except DBAPIError as error:
        with translate_errors():
            if isinstance(error.orig, psycopg.Error):
                raise error.orig from error
        raise
    finally:
        engine.dispose()
