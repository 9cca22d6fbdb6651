"""Fixtures that all tests share: a real Postgres, and a database of its own for each test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from memserver.storage.checks import APP_ROLE
from memserver.storage.embedded_postgres import EmbeddedPostgres
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from tests.support import Golden, OneDatabase

TEMPLATE = "memserver_template"


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server for the whole run, with a migrated template database."""
    # Not pytest's own folder: as root the server runs as another account, which may not pass there.
    home = Path(tempfile.mkdtemp(prefix="memserver-test-", dir="/tmp"))
    home.chmod(0o711)
    fast = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    with EmbeddedPostgres(home / "postgres", settings=fast) as server:
        prepare_embedded(server.url(), TEMPLATE)
        migrate(server.url(TEMPLATE, OWNER_ROLE))
        yield server
    shutil.rmtree(home)


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[OneDatabase]:
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}").format(
                sql.Identifier(name), sql.Identifier(TEMPLATE), sql.Identifier(OWNER_ROLE)
            )
        )
        yield OneDatabase(
            postgres.url(name, APP_ROLE), postgres.url(name, OWNER_ROLE), postgres.url(name)
        )
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def golden() -> Golden:
    return Golden(Path(__file__).parent / "golden")
