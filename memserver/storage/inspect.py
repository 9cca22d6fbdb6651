"""What a database server is and how far its schema is; changes nothing."""

from dataclasses import dataclass

import psycopg

from memserver.errors import DatabaseError
from memserver.storage.failures import AWAY


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    server: str
    server_number: int
    pgvector: str | None
    revision: str | None


def agents_naming(url: str, model: str) -> list[str]:
    """The names of the agents, of all tenants, that name this model; read as the owner."""
    query = "SELECT name FROM agents WHERE model = %s ORDER BY name"
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            return [name for (name,) in connection.execute(query, [model]).fetchall()]
    except psycopg.Error as error:
        raise DatabaseError("The agents can't be read.", detail=str(error)) from error


def inspect(url: str) -> DatabaseReport:
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            version = connection.execute(
                "SELECT current_setting('server_version'), current_setting('server_version_num')"
            ).fetchone()
            extension = connection.execute(
                "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            ).fetchone()
            migrated = connection.execute(
                "SELECT to_regclass('memserver_migrations') IS NOT NULL"
            ).fetchone()
            revision = None
            if migrated and migrated[0]:
                found = connection.execute(
                    "SELECT version_num FROM memserver_migrations"
                ).fetchone()
                revision = found[0] if found else None
    except psycopg.Error as error:
        raise DatabaseError(AWAY, detail=str(error)) from error
    assert version is not None
    return DatabaseReport(
        version[0], int(version[1]), extension[0] if extension else None, revision
    )
