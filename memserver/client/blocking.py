"""The transport that waits: sends requests on this thread and sleeps between tries."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar
from uuid import UUID

import httpx2

from memserver.client.address import Addresses, headers_of
from memserver.client.events import Event, Reconnected
from memserver.client.models import Page
from memserver.client.progress import Progress
from memserver.client.requests import PIECE, Request, next_page
from memserver.client.retries import Retries, read

T = TypeVar("T")
C = TypeVar("C", bound=UUID | int | str)


class Transport:
    """Sends requests and waits for their answers."""

    def __init__(
        self, http: httpx2.Client, url: str | Sequence[str], api_key: str | None, retries: Retries
    ) -> None:
        self._http = http
        self._addresses = Addresses(url)
        self._headers = headers_of(api_key)
        self._retries = retries

    def run(self, request: Request[T]) -> T:
        """Send, again if that helps, and read the answer. Raises MemserverError."""
        tried = 0
        while True:
            tried += 1
            base = self._addresses.base
            try:
                answer = self._receive(request)
            except httpx2.TransportError as failure:
                time.sleep(self._retries.after_failure(request, tried, failure))
                self._addresses.move_on(base)
                continue
            pause = self._retries.after_answer(request, tried, answer)
            if pause is None:
                return read(request, answer)
            time.sleep(pause)
            if answer.status_code != 429:
                self._addresses.move_on(base)

    def items(self, request: Request[Page[T, C]]) -> Iterator[T]:
        """All of a list, page by page."""
        following: Request[Page[T, C]] | None = request
        while following is not None:
            page = self.run(following)
            yield from page.items
            following = next_page(following, page)

    def stream(self, request: Request[None]) -> "Stream":
        """Follow a turn as events; the request is sent with the first `next`."""
        return Stream(self, Progress(request))

    def events(self, progress: Progress) -> Generator[Event]:
        """A stream's events to its end, over as many connections as it takes."""
        tried = 0
        while True:
            answer = broken = None
            base = self._addresses.base
            try:
                answer = self._http.send(
                    self._prepared(progress.request, progress.headers), stream=True
                )
                if not answer.is_success:
                    answer.read()
                elif progress.connected(answer.headers):
                    yield Reconnected(attempt=tried)
                for frame in _frames(answer):
                    if event := progress.take(frame):
                        yield event
                    if progress.ended:
                        return
            except httpx2.TransportError as failure:
                broken = failure
            finally:
                if answer is not None:
                    answer.close()
            tried = 1 if progress.moved() else tried + 1
            time.sleep(self._retries.after_break(progress.request, tried, answer, broken))
            self._addresses.move_on(base)

    def _receive(self, request: Request[T]) -> httpx2.Response:
        """The answer; what it brings goes to the request's target, if there is one."""
        prepared = self._prepared(request, request.headers)
        if request.target is None:
            return self._http.send(prepared)
        answer = self._http.send(prepared, stream=True)
        with closing(answer):
            if answer.is_success:
                _save(answer, request.target)
            else:
                answer.read()
        return answer

    def _prepared(self, request: Request[T], headers: dict[str, str]) -> httpx2.Request:
        return self._http.build_request(
            request.method,
            self._addresses.base + request.url,
            params=httpx2.QueryParams(request.parameters) or None,
            content=_pieces(request.file) if isinstance(request.file, Path) else request.content,
            headers={**self._headers, **headers},
        )


def _save(answer: httpx2.Response, file: Path) -> None:
    """Write it to a file, which has its name only when it is whole."""
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as writing:
            for piece in answer.iter_bytes():
                writing.write(piece)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as reading:
        while piece := reading.read(PIECE):
            yield piece


def _frames(answer: httpx2.Response) -> Iterator[httpx2.ServerSentEvent]:
    return iter(httpx2.EventSource(answer, max_event_size=None) if answer.is_success else ())


class Stream:
    """The events of a turn. Iterate over it, best in a `with` block, which closes the connection.

    The turn continues without its readers. A connection that breaks is made again, and the stream resumes
    where it was.
    """

    def __init__(self, transport: Transport, progress: Progress) -> None:
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

    def resumed(self) -> "Stream":
        """Another stream that resumes where this one was left."""
        self._progress.left()
        return Stream(self._transport, self._progress)

    def close(self) -> None:
        """Read no further."""
        self._events.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
