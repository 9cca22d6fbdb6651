"""The memories as an MCP server over streamable HTTP, at /mcp, for clients with an API key.

Owns when the SDK is loaded, and who asks. `access` has let the request in; the tools are `memserver.api.mcp_server`'s.
No session is kept, so that any of several worker processes answers any request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from memserver.api.errors import answer
from memserver.api.middleware.access import MCP
from memserver.errors import ServerStarting
from memserver.wiring.services import Services

MOST_BYTES = 2_000_000
"""The SDK reads a request at once: a larger one would hold up everybody."""


class McpEndpoint:
    """Answers MCP requests while `running`. The first one waits a second for the SDK to be loaded."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = min(most_bytes, MOST_BYTES)
        self._wanted = asyncio.Event()
        self._made: asyncio.Future[ASGIApp] | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def route(self) -> Route:
        """Where it is. Streams that the server would begin, and sessions to end, there are none: POST alone."""
        return Route(MCP, self, methods=["POST"], include_in_schema=False)

    @asynccontextmanager
    async def running(self, services: Services) -> AsyncIterator[None]:
        """Answer while the block runs; once it has ended another one may."""
        self._wanted = asyncio.Event()
        self._made = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(services, self._made))
        try:
            yield
        finally:
            self._made = None
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None or self._serving is None:
            await answer(ServerStarting())(scope, receive, send)
            return
        self._wanted.set()
        either: set[asyncio.Future[Any]] = {self._made, self._serving}
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._serving in done:
            self._serving.result()  # raises why it ended
        await self._made.result()(scope, receive, send)

    async def _serve(self, services: Services, made: asyncio.Future[ASGIApp]) -> None:
        await self._wanted.wait()
        manager = await asyncio.to_thread(partial(_make, services, self._most_bytes))
        async with manager.run():
            made.set_result(manager.handle_request)
            await asyncio.Event().wait()


def _make(services: Services, most_bytes: int) -> Any:  # noqa: ANN401 - known only when it is imported
    from memserver.api.mcp_server import make_manager  # noqa: PLC0415 - a second long

    return make_manager(services, most_bytes)
