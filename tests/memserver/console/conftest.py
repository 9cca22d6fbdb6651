"""A server that the tests of one file share, and people in front of its console."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.browsing import Browser
from tests.support.server import OneDatabase, Server, serving


@pytest.fixture
async def server(database: OneDatabase) -> AsyncIterator[Server]:
    async with serving(database, ScriptedModel()) as made:
        yield made


@pytest.fixture
async def browser(server: Server) -> AsyncIterator[Browser]:
    """A browser on the server's own machine."""
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(server.app), base_url="http://localhost"
    ) as http:
        yield Browser(http)
