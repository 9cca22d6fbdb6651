"""Brings a database to the newest schema, and the embedded server to a database."""

import logging
from importlib.resources import files
from pathlib import Path

import psycopg
from psycopg import sql

from memserver.errors import DatabaseError, SetupError
from memserver.storage.checks import APP_ROLE, create_role
from memserver.storage.failures import translate_errors
from memserver.storage.inspect import inspect

logger = logging.getLogger(__name__)

OWNER_ROLE = "memserver_owner"
NEWER = "Run the newer memserver, or restore the backup made before the upgrade."


def migrations_folder() -> Path:
    """Where the versions lie: beside the package in a checkout, inside it in a wheel."""
    packaged = Path(str(files("memserver"))) / "_migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"


def newest_revision() -> str:
    """The revision that this version of memserver needs: versions are numbered in their order."""
    return max(path.name.partition("_")[0] for path in migrations_folder().glob("versions/*.py"))


def prepare_embedded(superuser_url: str, database: str = "memserver") -> None:
    """Create the two roles, the database and the extension on a server that is ours alone.

    Two that start together do it once: the lock is held to the end.
    """
    with translate_errors(), psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended('memserver prepare', 0))")
        for role in (OWNER_ROLE, APP_ROLE):
            create_role(connection, role, login=True)
        found = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [database]
        ).fetchone()
        if found is None:
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(
                    sql.Identifier(database), sql.Identifier(OWNER_ROLE)
                )
            )
        with psycopg.connect(superuser_url, dbname=database, autocommit=True) as inside:
            inside.execute("CREATE EXTENSION IF NOT EXISTS vector")
            inside.execute(
                sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(
                    sql.Identifier(database)
                )
            )


def migrate(owner_url: str) -> str:
    """Upgrade to the newest schema, once if two start together; returns the database's revision.

    One that a newer version has migrated is left as it is, if it can be used by this one, too.

    Raises:
        SetupError: the server is too old, pgvector is missing, a right is, or the schema is newer than this version.
        DatabaseError: the server is unreachable, or can't be written to now.
    """
    newest = newest_revision()
    hint = "Check MEMSERVER_DATABASE_URL, and that the server runs and takes connections."
    try:
        report = inspect(owner_url)
        found = report.revision
        if found is not None and found > newest:
            if report.can_be_used_by(newest):
                logger.info("The database's schema is %s, newer than this memserver's.", found)
                return found
            raise SetupError(
                f"The database's schema is {found}, newer than this memserver's, which is {newest}.",
                hint=NEWER,
            )
        if found != newest:
            from memserver.storage.upgrade import upgrade  # noqa: PLC0415 - half a second

            upgrade(owner_url, migrations_folder())
    except DatabaseError as error:
        raise DatabaseError(error.message, detail=error.detail, hint=hint) from error
    return newest
