"""A folder for the servers of one test, and the scripted model beside them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from memserver.local.postgres.process import find_postmaster, stop
from tests.support.holding_embedder import HoldingEmbedder
from tests.support.http_app import serving
from tests.support.processes import CONTEXT_WINDOW
from tests.support.servers import ServerProcess, scripted_model, temporary_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path
        for pid_file in path.rglob("postmaster.pid"):
            if left := find_postmaster(pid_file.parent):
                stop(left, patience=10)


@pytest.fixture
def echo(folder: Path) -> Iterator[ServerProcess]:
    """A model that repeats what the user said."""
    with scripted_model(folder, context_window=CONTEXT_WINDOW) as process:
        yield process


@pytest.fixture
def embedder() -> Iterator[HoldingEmbedder]:
    made = HoldingEmbedder(gives=300)
    routes = [Route("/v1/embeddings", made.answer, methods=["POST"])]
    with serving(Starlette(routes=routes)) as url:
        made.url = f"{url}/v1"
        yield made
        made.let_go.set()
