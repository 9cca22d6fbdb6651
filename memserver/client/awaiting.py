"""The transport for asyncio and trio: sends requests and lets others run meanwhile."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Self, TypeVar
from uuid import UUID

import anyio
import httpx2

from memserver.client.address import Addresses, headers_of
from memserver.client.events import Event, Reconnected
from memserver.client.models import Page
from memserver.client.progress import Progress
from memserver.client.requests import PIECE, Request, next_page
from memserver.client.retries import Retries, read

T = TypeVar("T")
C = TypeVar("C", bound=UUID | int | str)


class AsyncTransport:
    """Sends requests and waits for their answers."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str | Sequence[str],
        api_key: str | None,
        retries: Retries,
    ) -> None:
        self._http = http
        self._addresses = Addresses(url)
        self._headers = headers_of(api_key)
        self._retries = retries

    async def run(self, request: Request[T]) -> T:
        """Send, again if that helps, and read the answer. Raises MemserverError."""
        tried = 0
        while True:
            tried += 1
            base = self._addresses.base
            try:
                answer = await self._receive(request)
            except httpx2.TransportError as failure:
                await anyio.sleep(self._retries.after_failure(request, tried, failure))
                self._addresses.move_on(base)
                continue
            pause = self._retries.after_answer(request, tried, answer)
            if pause is None:
                return read(request, answer)
            await anyio.sleep(pause)
            if answer.status_code != 429:
                self._addresses.move_on(base)

    async def items(self, request: Request[Page[T, C]]) -> AsyncIterator[T]:
        """All of a list, page by page."""
        following: Request[Page[T, C]] | None = request
        while following is not None:
            page = await self.run(following)
            for item in page.items:
                yield item
            following = next_page(following, page)

    def stream(self, request: Request[None]) -> "AsyncStream":
        """Follow a turn as events; the request is sent with the first `next`."""
        return AsyncStream(self, Progress(request))

    async def events(self, progress: Progress) -> AsyncGenerator[Event]:
        """A stream's events to its end, over as many connections as it takes."""
        tried = 0
        while True:
            answer = broken = None
            base = self._addresses.base
            try:
                answer = await self._http.send(
                    self._prepared(progress.request, progress.headers), stream=True
                )
                if not answer.is_success:
                    await answer.aread()
                elif progress.connected(answer.headers):
                    yield Reconnected(attempt=tried)
                async for frame in _frames(answer):
                    if event := progress.take(frame):
                        yield event
                    if progress.ended:
                        return
            except httpx2.TransportError as failure:
                broken = failure
            finally:
                if answer is not None:
                    await answer.aclose()
            tried = 1 if progress.moved() else tried + 1
            await anyio.sleep(self._retries.after_break(progress.request, tried, answer, broken))
            self._addresses.move_on(base)

    async def _receive(self, request: Request[T]) -> httpx2.Response:
        """The answer; what it brings goes to the request's target, if there is one."""
        prepared = self._prepared(request, request.headers)
        if request.target is None:
            return await self._http.send(prepared)
        answer = await self._http.send(prepared, stream=True)
        async with aclosing(answer):
            if answer.is_success:
                await _save(answer, request.target)
            else:
                await answer.aread()
        return answer

    def _prepared(self, request: Request[T], headers: dict[str, str]) -> httpx2.Request:
        return self._http.build_request(
            request.method,
            self._addresses.base + request.url,
            params=httpx2.QueryParams(request.parameters) or None,
            content=_pieces(request.file) if isinstance(request.file, Path) else request.content,
            headers={**self._headers, **headers},
        )


async def _save(answer: httpx2.Response, file: Path) -> None:
    """Write it to a file, which has its name only when it is whole."""
    part = anyio.Path(file.with_name(f"{file.name}.part"))
    try:
        async with await part.open("wb") as writing:
            async for piece in answer.aiter_bytes():
                await writing.write(piece)
        await part.replace(file)
    finally:
        with anyio.CancelScope(shield=True):
            await part.unlink(missing_ok=True)


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(file, "rb") as reading:
        while piece := await reading.read(PIECE):
            yield piece


async def _frames(answer: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent]:
    if answer.is_success:
        async for frame in httpx2.EventSource(answer, max_event_size=None):
            yield frame


class AsyncStream:
    """The events of a turn. Iterate over it, best in an `async with` block, which closes the connection.

    The turn continues without its readers. A connection that breaks is made again, and the stream resumes
    where it was.
    """

    def __init__(self, transport: AsyncTransport, progress: Progress) -> None:
        self._transport = transport
        self._progress = progress
        self._events = transport.events(progress)

    @property
    def turn(self) -> int | None:
        """The turn's number, once it is known."""
        return self._progress.turn

    @property
    def last_event_id(self) -> int | None:
        """Of the last step that was read whole: after it another stream can resume."""
        return self._progress.last_event_id

    def resumed(self) -> "AsyncStream":
        """Another stream that resumes where this one was left."""
        self._progress.left()
        return AsyncStream(self._transport, self._progress)

    async def aclose(self) -> None:
        """Read no further."""
        await self._events.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
