"""Each test that takes `connect` runs with both clients."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from memserver.client import AsyncClient, Client, Retries
from tests.support.client import Awaitable


@pytest.fixture(params=["sync", "async"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """Makes clients of a URL that try again at once."""
    async with AsyncExitStack() as stack:

        def make(url: str, **options: Any) -> Any:
            options.setdefault("retries", Retries(first_pause=0))
            if request.param == "async":
                client = AsyncClient(url, **options)
                stack.push_async_callback(client.aclose)
                return client
            waiting = Client(url, **options)
            stack.callback(waiting.close)
            return Awaitable(waiting)

        yield make
