"""A server that the tests of one file share, and people in front of its console."""

from collections.abc import AsyncIterator

import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.browsing import Browser, visiting
from tests.support.server import OneDatabase, Server, serving


@pytest.fixture
async def server(database: OneDatabase) -> AsyncIterator[Server]:
    async with serving(database, ScriptedModel()) as made:
        yield made


@pytest.fixture
async def browser(server: Server) -> AsyncIterator[Browser]:
    """One on the server's own machine."""
    made = visiting(server.app)
    async with made.http:
        yield made
