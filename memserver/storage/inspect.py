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
    oldest: str | None = None
    """The oldest revision whose code can use the database; None where it doesn't say."""

    def can_be_used_by(self, newest: str) -> bool:
        """Whether code whose newest revision is this one can use the database as it is."""
        if self.revision is None or self.revision <= newest:
            return self.revision == newest
        return self.oldest is not None and self.oldest <= newest


def agents_naming(url: str, model: str) -> list[str]:
    """The names of the agents, of all tenants, that name this model; read as the owner."""
    query = "SELECT name FROM agents WHERE model = %s ORDER BY name"
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            return [name for (name,) in connection.execute(query, [model]).fetchall()]
    except psycopg.Error as error:
        raise DatabaseError("The agents can't be read.", detail=str(error)) from error


def inspect(url: str) -> DatabaseReport:
    query = """SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
                   (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
                   to_regclass('memserver_migrations') IS NOT NULL,
                   to_regclass('memserver_compatibility') IS NOT NULL"""
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            row = connection.execute(query).fetchone()
            assert row is not None
            server, number, pgvector, migrated, says_oldest = row
            found = oldest = None
            if migrated:
                query = "SELECT version_num FROM memserver_migrations"
                found = connection.execute(query).fetchone()
            if says_oldest:
                oldest = connection.execute("SELECT oldest FROM memserver_compatibility").fetchone()
    except psycopg.Error as error:
        raise DatabaseError(AWAY, detail=str(error)) from error
    return DatabaseReport(
        server, number, pgvector, found[0] if found else None, oldest[0] if oldest else None
    )
