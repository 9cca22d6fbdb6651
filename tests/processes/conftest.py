"""A folder for the servers of one test, and the scripted model beside them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from memserver.local.postgres.process import find_postmaster, stop
from memserver.testing.scripted_rules import RULES
from memserver.testing.scripted_server import create_scripted_app
from tests.support.holding_embedder import HoldingEmbedder
from tests.support.http_app import serving
from tests.support.processes import CONTEXT_WINDOW, Endpoint
from tests.support.servers import temporary_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path
        for pid_file in path.rglob("postmaster.pid"):
            if left := find_postmaster(pid_file.parent):
                stop(left, patience=10)


@pytest.fixture(scope="module")
def echo() -> Iterator[Endpoint]:
    """A model that repeats what the user said."""
    with serving(create_scripted_app(RULES["echo"], context_window=CONTEXT_WINDOW)) as url:
        yield Endpoint(url)


@pytest.fixture
def embedder() -> Iterator[HoldingEmbedder]:
    made = HoldingEmbedder(gives=300)
    routes = [Route("/v1/embeddings", made.answer, methods=["POST"])]
    with serving(Starlette(routes=routes)) as url:
        made.url = f"{url}/v1"
        yield made
        made.let_go.set()
