"""A server on a real socket, a way to break its connections, and both clients behind one face."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memserver.client.blocking import Stream
from memserver.client.methods import Resource, items, streamed
from memserver.settings import Settings
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from memserver.wiring.services import assemble
from tests.support.apps import application
from tests.support.http_app import serving
from tests.support.server import FixedModels, OneDatabase


@dataclass
class Line:
    """What lies between a client and the server: keeps a log, and cuts what `cut` says.

    `cut` gets each request's method and path, and says after how many pieces of the answer's body the
    connection breaks; 0 breaks it before the first one, None leaves it whole.
    """

    app: ASGIApp
    cut: Callable[[str, str], int | None] = lambda *_: None
    log: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.log.append((scope["method"], scope["path"]))
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        left = self.cut(scope["method"], scope["path"])

        async def cutting(message: Message) -> None:
            nonlocal left
            if left is not None and message["type"] == "http.response.start":
                kept = [each for each in message["headers"] if each[0] != b"content-length"]
                message = {**message, "headers": kept}
            if left is not None and message["type"] == "http.response.body":
                if left == 0:
                    raise ConnectionResetError("cut")
                left -= 1
            await send(message)

        await self.app(scope, receive, cutting)


@dataclass
class Served:
    url: str
    line: Line
    model: ScriptedModel


@contextmanager
def served(database: OneDatabase, model: ScriptedModel, **settings: Any) -> Iterator[Served]:
    """The whole server over a test's database, with a scripted model, on a real socket."""
    options = Settings(**{"_env_file": None, "lease_seconds": 2, "jobs_at_once": 0, **settings})
    services = assemble(database.app, FixedModels(model), HashingEmbedder(), options)
    with application(services, options) as app:
        line = Line(app)
        with serving(line, lifespan="on") as url:
            yield Served(url, line, model)


class Awaitable:
    """The waiting client as one whose methods are awaited: each runs in a thread."""

    def __init__(self, inner: Resource[Any]) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if isinstance(value, Resource):
            return Awaitable(value)
        kind = inspect.getattr_static(type(self._inner), name, None)
        if isinstance(kind, items):
            return lambda *args, **kwargs: _stepped(value(*args, **kwargs))
        if isinstance(kind, streamed):
            return lambda *args, **kwargs: AwaitableStream(value(*args, **kwargs))

        async def method(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(value, *args, **kwargs)

        return method


class AwaitableStream:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def resumed(self) -> "AwaitableStream":
        return AwaitableStream(self._stream.resumed())

    def __aiter__(self) -> AsyncIterator[Any]:
        return _stepped(self._stream)

    async def __aenter__(self) -> "AwaitableStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stream.close)


async def _stepped(items: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item


def once(method: str, path_end: str, pieces: int) -> Callable[[str, str], int | None]:
    """Cuts the first answer to such a request."""
    left = [pieces]

    def cut(asked: str, path: str) -> int | None:
        return left.pop() if left and asked == method and path.endswith(path_end) else None

    return cut
