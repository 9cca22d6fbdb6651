"""How the database of the settings is reached: an external one, or the embedded one, which is started."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memserver.errors import SetupError
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.settings import Settings
from memserver.storage.checks import APP_ROLE, check_app_url
from memserver.storage.connecting import TransactionLimits, for_writing
from memserver.storage.database import Database
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from memserver.storage.replica import Pooling, ReplicatedDatabase
from memserver.telemetry.metrics import NO_METRICS, Recorder

EMBEDDED_DATABASE = "memserver"
LARGEST_PORT = 65_535
SHORTEST_IDLE = 10
"""Seconds that a transaction may be idle, however short a lease is: a busy machine may take them."""


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """How the database is reached: as the owner, who migrates, and as the application role."""

    owner: str
    app: str
    revision: str = ""
    """Of the schema, once it was migrated."""


@contextmanager
def database_urls(settings: Settings) -> Iterator[DatabaseUrls]:
    """The database of the settings, running and migrated while the block runs.

    Raises:
        SetupError: it can't be had; the hint says how to fix it.
        DatabaseError: it is away.
    """
    with reachable_database(settings) as urls:
        revision = migrate(urls.owner)
        check_app_url(urls.app)
        yield replace(urls, revision=revision)


@contextmanager
def reachable_database(settings: Settings) -> Iterator[DatabaseUrls]:
    """The database of the settings as it is; the embedded one is started.

    Raises:
        SetupError: its URL is none, or the embedded one can't run here; the hint says how to fix it.
        DatabaseError: the embedded one recovers from a crash.
    """
    if settings.database_url is not None:
        owner = _checked_url(settings.database_url.get_secret_value())
        yield DatabaseUrls(for_writing(owner), for_writing(_app_url(settings, owner)))
        return
    with EmbeddedPostgres(settings.home / "postgres") as server, server.keep_running():
        prepare_embedded(server.url(), EMBEDDED_DATABASE)
        yield DatabaseUrls(
            server.url(EMBEDDED_DATABASE, OWNER_ROLE), server.url(EMBEDDED_DATABASE, APP_ROLE)
        )


def make_database(app_url: str, settings: Settings, metrics: Recorder = NO_METRICS) -> Database:
    """The pool of connections as the application role, and that to the replica. Raises SetupError."""
    pooling = Pooling(
        pool_size=settings.database_pool_size,
        limits=TransactionLimits(idle=max(settings.lease_seconds, SHORTEST_IDLE)),
        prepared=settings.database_prepared_statements,
    )
    replica = replica_url(settings)
    if replica is None:
        return Database(app_url, **pooling)
    return ReplicatedDatabase(app_url, replica, metrics, **pooling)


def replica_url(settings: Settings) -> str | None:
    """Where searches run, as the application role; None: on the primary. Raises SetupError: it is no URL."""
    if settings.database_read_url is None:
        return None
    name = "MEMSERVER_DATABASE_READ_URL"
    replica = _checked_url(settings.database_read_url.get_secret_value(), name)
    return _as_app_role(replica) if settings.database_app_url is None else replica


def _checked_url(url: str, name: str = "MEMSERVER_DATABASE_URL") -> str:
    """The URL, if it is one; the message repeats nothing of it, since it may hold a password."""
    try:
        ports = str(conninfo_to_dict(url).get("port") or "").split(",")
        well = url.startswith(("postgresql://", "postgres://")) and all(map(_may_be_port, ports))
    except ProgrammingError:
        well = False
    if not well:
        raise SetupError(
            f"{name} is not the URL of a Postgres database.",
            hint="It looks like postgresql://user:password@host:5432/database.",
        )
    return url


def _may_be_port(port: str) -> bool:
    return not port or (port.isdecimal() and 0 < int(port) <= LARGEST_PORT)


def _app_url(settings: Settings, owner: str) -> str:
    """An external server's URL as the application role, which the owner may become."""
    if settings.database_app_url is not None:
        return settings.database_app_url.get_secret_value()
    return _as_app_role(owner)


def _as_app_role(url: str) -> str:
    options = str(conninfo_to_dict(url).get("options") or "")
    return make_conninfo(url, options=f"{options} -c role={APP_ROLE}".strip())
