"""Brings a database to the newest schema. Owns roles, the extension and alembic; knows no table.

Two workers that start together migrate once: an advisory lock, held for the transaction, orders them.
"""

from importlib.resources import files
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import Connection, create_engine, make_url, pool, text
from sqlalchemy.exc import OperationalError

from memserver.errors import SetupError

APP_ROLE = "memserver_app"
OWNER_ROLE = "memserver_owner"
MIN_POSTGRES = 150000
MIN_PGVECTOR = (0, 8)


def migrations_folder() -> Path:
    """Where the versions lie: beside the package in a checkout, inside it in a wheel."""
    packaged = Path(str(files("memserver"))) / "_migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"


def alembic_config() -> Config:
    """Alembic's configuration, without an ini file."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    return config


def newest_revision() -> str:
    """The revision that this version of memserver needs."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert head is not None
    return head


def prepare_embedded(superuser_url: str, database: str = "memserver") -> None:
    """Create the two roles, the database and the extension on a server that is ours alone."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended('memserver prepare', 0))")
        for role in (OWNER_ROLE, APP_ROLE):
            _create_role(connection, role, login=True)
        found = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [database]
        ).fetchone()
        if found is None:
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(
                    sql.Identifier(database), sql.Identifier(OWNER_ROLE)
                )
            )
    with psycopg.connect(superuser_url, dbname=database, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


def migrate(owner_url: str) -> str:
    """Upgrade to the newest schema; does nothing where it is already there.

    Returns:
        The revision the database is at now.

    Raises:
        SetupError: the server is unreachable or too old, pgvector is missing, or a right is.
    """
    # A `postgresql://` URL names no driver to SQLAlchemy; ours is psycopg 3.
    url = make_url(owner_url).set(drivername="postgresql+psycopg")
    engine = create_engine(url, poolclass=pool.NullPool)
    try:
        with engine.begin() as connection:
            connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended('memserver migrate', 0))")
            )
            _check_server(connection)
            config = alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except OperationalError as error:
        raise SetupError(
            f"The database can't be reached: {error.orig}",
            hint="Check MEMSERVER_DATABASE_URL, and that the server runs and takes connections.",
        ) from error
    finally:
        engine.dispose()
    return newest_revision()


def _check_server(connection: Connection) -> None:
    version = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if version < MIN_POSTGRES:
        raise SetupError(
            f"PostgreSQL {version // 10000} is too old.", hint="memserver needs 15 or newer."
        )
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    _require_pgvector(driver)
    _require_app_role(driver)


def _require_pgvector(connection: psycopg.Connection) -> None:
    hint = "As a superuser of this database: CREATE EXTENSION vector; (pgvector 0.8 or newer)."
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            "The extension vector is missing and this role can't create it.", hint=hint
        ) from error
    except psycopg.errors.UndefinedFile as error:
        raise SetupError("pgvector isn't installed on this server.", hint=hint) from error
    row = connection.execute(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    assert row is not None
    if tuple(int(part) for part in row[0].split(".")[:2]) < MIN_PGVECTOR:
        raise SetupError(f"pgvector {row[0]} is too old.", hint="memserver needs 0.8 or newer.")


def _require_app_role(connection: psycopg.Connection) -> None:
    try:
        with connection.transaction():
            _create_role(connection, APP_ROLE, login=False)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            f"The role {APP_ROLE} is missing and this role can't create it.",
            hint=f"As a superuser: CREATE ROLE {APP_ROLE}; GRANT {APP_ROLE} TO your owner role;",
        ) from error


def _create_role(connection: psycopg.Connection, role: str, *, login: bool) -> None:
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
        return
    connection.execute(
        sql.SQL("CREATE ROLE {} NOSUPERUSER NOBYPASSRLS {}").format(
            sql.Identifier(role), sql.SQL("LOGIN" if login else "NOLOGIN")
        )
    )
    if not login:
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
