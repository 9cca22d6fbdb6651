"""What a database server is and how far its schema is; changes nothing."""

import time
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memserver.errors import DatabaseError
from memserver.storage.checks import APP_ROLE
from memserver.storage.failures import AWAY
from memserver.storage.replica import IDENTITY, LOOK_SECONDS, POSITION, REACHES


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


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A server that searches are to run on, as the role of its URL sees it."""

    role: str
    is_standby: bool
    is_of_primary: bool  # of the same cluster, and the same database in it
    is_bound: bool  # by row-level security
    is_app: bool  # the application's role, or a member of it
    has_feedback: bool  # so that its replay cancels no searches
    lag: float  # seconds after which it had all that the primary had committed when it was asked
    missing: int  # bytes of write-ahead log that it hadn't replayed after all that time


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


def each_host(url: str) -> dict[str, str]:
    """For each host that a URL names, by that, the URL that leads to it alone, whatever it is."""
    given = conninfo_to_dict(url)
    parts = {
        name: str(given[name]).split(",") for name in ("host", "hostaddr", "port") if name in given
    }
    found = {}
    for at in range(max(map(len, parts.values()), default=1)):
        one = {name: values[at % len(values)] for name, values in parts.items()}
        found[":".join(one.values())] = make_conninfo(url, target_session_attrs="any", **one)
    return found


def inspect_replica(primary_url: str, url: str, within: float) -> ReplicaReport:
    """How a replica does, seen for so many seconds. Raises DatabaseError: it, or the primary, can't be asked."""
    query = f"""SELECT current_user, pg_is_in_recovery(), ({IDENTITY}),
                    row_security_active(to_regclass('agents')::oid),
                    (SELECT pg_has_role(oid, 'USAGE') FROM pg_roles WHERE rolname = '{APP_ROLE}'),
                    current_setting('hot_standby_feedback')::boolean"""
    try:
        with (
            psycopg.connect(primary_url, connect_timeout=10, autocommit=True) as primary,
            psycopg.connect(url, connect_timeout=10, autocommit=True) as replica,
        ):
            row = replica.execute(query).fetchone()
            assert row is not None
            role, is_standby, identity, is_bound, is_app, has_feedback = row
            is_of_primary = primary.execute(IDENTITY).fetchone() == (identity,)
            lag, missing = (
                _lag(primary, replica, within) if is_standby and is_of_primary else (0.0, 0)
            )
    except psycopg.Error as error:
        raise DatabaseError(AWAY, detail=str(error)) from error
    return ReplicaReport(
        role, is_standby, is_of_primary, bool(is_bound), bool(is_app), has_feedback, lag, missing
    )


def _lag(
    primary: psycopg.Connection, replica: psycopg.Connection, within: float
) -> tuple[float, int]:
    """The seconds until a replica has what its primary has committed by now, and the bytes that it lacks then."""
    position = primary.execute(POSITION).fetchone()
    assert position is not None
    start = time.monotonic()
    while replica.execute(REACHES.encode(), position).fetchone() != (True,):
        if time.monotonic() - start > within:
            query = "SELECT (%s::pg_lsn - pg_last_wal_replay_lsn())::bigint"
            lacking = replica.execute(query, position).fetchone()
            assert lacking is not None
            return time.monotonic() - start, max(0, lacking[0])
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - start, 0
