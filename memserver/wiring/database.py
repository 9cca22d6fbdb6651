"""How the database of the settings is reached: an external one, or the embedded one, which is started."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memserver.errors import SetupError
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.settings import Settings
from memserver.storage.checks import APP_ROLE, check_app_url
from memserver.storage.connecting import for_writing
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded

EMBEDDED_DATABASE = "memserver"
LARGEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """How the database is reached: as the owner, who migrates, and as the application role."""

    owner: str
    app: str


@contextmanager
def database_urls(settings: Settings) -> Iterator[DatabaseUrls]:
    """The database of the settings, running and migrated while the block runs.

    Raises:
        SetupError: it can't be had; the hint says how to fix it.
        DatabaseError: it is away.
    """
    with reachable_database(settings) as urls:
        migrate(urls.owner)
        check_app_url(urls.app)
        yield urls


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


def _checked_url(url: str) -> str:
    """The URL, if it is one; the message repeats nothing of it, since it may hold a password."""
    try:
        ports = str(conninfo_to_dict(url).get("port") or "").split(",")
        well = url.startswith(("postgresql://", "postgres://")) and all(map(_may_be_port, ports))
    except ProgrammingError:
        well = False
    if not well:
        raise SetupError(
            "MEMSERVER_DATABASE_URL is not the URL of a Postgres database.",
            hint="It looks like postgresql://user:password@host:5432/database.",
        )
    return url


def _may_be_port(port: str) -> bool:
    return not port or (port.isdecimal() and 0 < int(port) <= LARGEST_PORT)


def _app_url(settings: Settings, owner: str) -> str:
    """An external server's URL as the application role, which the owner may become."""
    if settings.database_app_url is not None:
        return settings.database_app_url.get_secret_value()
    options = str(conninfo_to_dict(owner).get("options") or "")
    return make_conninfo(owner, options=f"{options} -c role={APP_ROLE}".strip())
