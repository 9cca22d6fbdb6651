"""The public API without a network: requests of the console's go through the server's own application, middleware and all.

So the console sees what the caller's key sees, and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx2
from starlette.types import ASGIApp, Message, Scope
from typing_extensions import override

PASSED_ON = frozenset(
    {b"host", b"origin", b"x-forwarded-for", b"x-real-ip", b"forwarded", b"sec-fetch-site"}
)
"""What the browser and proxies said of where a request comes from counts for what is asked on its behalf, too."""


class InProcess(httpx2.AsyncBaseTransport):
    """Sends requests to the application that answers `outer`, as coming from the same place; streams as they come."""

    def __init__(self, outer: Scope) -> None:
        self._outer = outer

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await _Call(self._outer["app"], self._scope(request), request).answer()

    def _scope(self, request: httpx2.Request) -> Scope:
        outer = self._outer
        own = [
            (name.lower(), value)
            for name, value in request.headers.raw
            if name.lower() not in PASSED_ON
        ]
        root = outer.get("root_path", "")
        raw = request.url.raw_path.partition(b"?")[0]
        kept = ("type", "asgi", "http_version", "scheme", "client", "server", "root_path")
        return {
            **{name: outer[name] for name in kept if name in outer},
            "method": request.method,
            "path": root + request.url.path,
            "raw_path": root.encode() + raw,
            "query_string": request.url.query,
            "headers": [*own, *_passed_on(outer)],
            "state": {},
        }


def _passed_on(outer: Scope) -> list[tuple[bytes, bytes]]:
    """A person who follows a link from another page comes from there; what the page then asks for does not."""
    headers = dict(outer["headers"])
    goes = outer["method"] == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
    dropped = {b"sec-fetch-site", b"origin"} if goes else set[bytes]()
    return [each for each in outer["headers"] if each[0] in PASSED_ON - dropped]


class _Call:
    """One request, which the application answers in a task of its own."""

    def __init__(self, app: ASGIApp, scope: Scope, request: httpx2.Request) -> None:
        self._app = app
        self._scope = scope
        self._request = request
        self._pieces = self._body()
        self._left = asyncio.Event()
        self._sent: asyncio.Queue[Message | None] = asyncio.Queue()

    async def answer(self) -> httpx2.Response:
        """Its head; the body comes piece by piece."""
        task = asyncio.create_task(self._run())
        head = await self._sent.get()
        if head is None:
            await task  # raises what it failed with
            raise httpx2.RemoteProtocolError("There was no answer.", request=self._request)
        stream = _Stream(self._sent, self._left, task)
        return httpx2.Response(head["status"], headers=head["headers"], stream=stream)

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._sent.put)
        finally:
            await self._sent.put(None)

    async def _body(self) -> AsyncIterator[Message]:
        stream = self._request.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        async for piece in stream:
            yield {"type": "http.request", "body": piece, "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()

    async def _receive(self) -> Message:
        return await anext(self._pieces, {"type": "http.disconnect"})


class _Stream(httpx2.AsyncByteStream):
    def __init__(
        self, sent: asyncio.Queue[Message | None], left: asyncio.Event, task: asyncio.Task[None]
    ) -> None:
        self._sent = sent
        self._left = left
        self._task = task

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._sent.get()) is not None:
            yield message.get("body", b"")

    @override
    async def aclose(self) -> None:
        """Hang up, and let the application notice: it is not cut off within what it does last."""
        self._left.set()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # the log has it, and the answer says so
