"""`memserver migrate` and `memserver doctor`, as they are run by hand or before a start."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, newest_revision, prepare_embedded
from tests.support.http_app import serving
from tests.support.processes import Endpoint, command, rows, settings_on
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9"


async def embed(request: Request) -> JSONResponse:
    texts = (await request.json())["input"]
    vectors = [{"index": index, "embedding": [1.0] * 384} for index, _ in enumerate(texts)]
    return JSONResponse({"data": vectors})


@pytest.fixture
def embedder() -> Iterator[str]:
    with serving(Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"])])) as url:
        yield f"{url}/v1"


@pytest.fixture
def bare(postgres: EmbeddedPostgres) -> OneDatabase:
    """A database without migrations; it goes with the server."""
    name = f"bare_{uuid4().hex}"
    prepare_embedded(postgres.url(), name)
    return OneDatabase(
        postgres.url(name, APP_ROLE), postgres.url(name, OWNER_ROLE), postgres.url(name)
    )


def test_migrate_brings_a_bare_database_to_the_newest_schema_and_can_be_repeated(
    folder: Path, bare: OneDatabase
) -> None:
    for _ in range(2):
        done = command(folder, settings_on(bare, NOBODY), "migrate")
        assert done.returncode == 0
        assert done.stdout == f"The database is at {newest_revision()}.\n"
    assert rows(bare, "SELECT count(*) FROM agents") == [(0,)]


def test_doctor_finds_nothing_to_fix_where_all_is_well(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: str
) -> None:
    settings = settings_on(database, echo.url, embedding_base_url=embedder)
    done = command(folder, settings, "doctor")
    assert done.returncode == 0
    assert "All is well." in done.stdout
    assert "✗" not in done.stdout
    assert "English" not in done.stdout
    assert done.stderr == ""


def test_doctor_names_multilingual_embedding_models_where_the_one_in_use_is_for_english(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: str
) -> None:
    settings = settings_on(
        database, echo.url, embedding_base_url=embedder, embedding_model="all-MiniLM-L6-v2"
    )
    done = command(folder, settings, "doctor")
    assert done.returncode == 0
    assert "for English" in done.stdout
    assert "multilingual-e5-small" in done.stdout


def test_doctor_says_what_to_do_where_the_endpoints_are_down(
    folder: Path, database: OneDatabase
) -> None:
    done = command(folder, settings_on(database, NOBODY), "doctor")
    assert done.returncode == 1
    assert "2 of 7 need fixing." in done.stdout
    assert "MEMSERVER_LLM_BASE_URL" in done.stdout
    assert "MEMSERVER_EMBEDDING_BASE_URL" in done.stdout
    assert done.stderr == ""


def test_doctor_says_to_migrate_a_database_that_lacks_migrations_and_does_not_do_it(
    folder: Path, echo: Endpoint, embedder: str, bare: OneDatabase
) -> None:
    settings = settings_on(bare, echo.url, embedding_base_url=embedder)
    done = command(folder, settings, "doctor")
    assert done.returncode == 1
    assert "1 of 8 need fixing." in done.stdout
    assert "memserver migrate" in done.stdout
    assert rows(bare, "SELECT to_regclass('agents') IS NULL") == [(True,)]


def test_doctor_reports_an_embedder_without_a_model_and_looks_at_the_rest(
    folder: Path, database: OneDatabase, echo: Endpoint
) -> None:
    settings = settings_on(database, echo.url)
    del settings["embedding_model"]
    done = command(folder, settings, "doctor")
    assert done.returncode == 1
    assert "1 of 9 need fixing." in done.stdout
    assert "MEMSERVER_EMBEDDING_MODEL" in done.stdout


def test_doctor_says_that_the_database_is_down(folder: Path, echo: Endpoint, embedder: str) -> None:
    nowhere = "postgresql://me:secret@127.0.0.1:9/mine"
    settings = settings_on(
        OneDatabase(nowhere, nowhere, nowhere), echo.url, embedding_base_url=embedder
    )
    done = command(folder, settings, "doctor")
    assert done.returncode == 1
    assert "MEMSERVER_DATABASE_URL" in done.stdout
    assert "secret" not in done.stdout + done.stderr
