"""The transport that waits: sends requests on this thread and sleeps between tries."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

import httpx2

from memserver.client.address import base_of, headers_of
from memserver.client.events import Event, Reconnected
from memserver.client.progress import Progress
from memserver.client.requests import PIECE, PageRequest, Request, build
from memserver.client.retries import Retries, error_in, read

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=UUID | int | str)


class Transport:
    """Sends requests and waits for their answers."""

    def __init__(
        self, http: httpx2.Client, url: str, api_key: str | None, retries: Retries
    ) -> None:
        self._http = http
        self._base = base_of(url)
        self._headers = headers_of(api_key)
        self._retries = retries

    def run(self, request: Request[T]) -> T:
        """Send, again if that helps, and read the answer. Raises MemserverError."""
        tried = 0
        while True:
            tried += 1
            try:
                answer = self._http.send(self._prepared(request, request.headers))
            except httpx2.TransportError as failure:
                time.sleep(self._retries.after_failure(request, tried, failure))
                continue
            pause = self._retries.after_answer(request, tried, answer)
            if pause is None:
                return read(request, answer)
            time.sleep(pause)

    def items(self, request: PageRequest[T, C]) -> Iterator[T]:
        """All of a list, page by page."""
        following: PageRequest[T, C] | None = request
        while following is not None:
            page = self.run(following)
            yield from page.items
            following = following.following(page)

    def save(self, request: Request[None], file: Path) -> None:
        """Write the answer to a file, which has its name only when it is whole. Raises MemserverError."""
        tried = 0
        part = file.with_name(f"{file.name}.part")
        try:
            while not self._save(request, part, tried := tried + 1):
                pass
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)

    def _save(self, request: Request[None], part: Path, tried: int) -> bool:
        try:
            answer = self._http.send(self._prepared(request, request.headers), stream=True)
            with closing(answer):
                if answer.is_success:
                    with part.open("wb") as writing:
                        for piece in answer.iter_bytes():
                            writing.write(piece)
                    return True
                answer.read()
        except httpx2.TransportError as failure:
            time.sleep(self._retries.after_failure(request, tried, failure))
            return False
        pause = self._retries.after_answer(request, tried, answer)
        if pause is None:
            raise error_in(answer)
        time.sleep(pause)
        return False

    def events(self, progress: Progress) -> Generator[Event]:
        """A stream's events to its end, over as many connections as it takes."""
        tried = 0
        while True:
            answer = broken = None
            try:
                answer = self._http.send(
                    self._prepared(progress.request, progress.headers), stream=True
                )
                if not answer.is_success:
                    answer.read()
                elif progress.connected():
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

    def _prepared(self, request: Request[T], headers: dict[str, str]) -> httpx2.Request:
        return self._http.build_request(
            request.method,
            self._base + request.url,
            params=httpx2.QueryParams(request.parameters) or None,
            content=_pieces(request.file) if isinstance(request.file, Path) else request.content,
            headers={**self._headers, **headers},
        )


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as reading:
        while piece := reading.read(PIECE):
            yield piece


def _frames(answer: httpx2.Response) -> Iterator[httpx2.ServerSentEvent]:
    return iter(httpx2.EventSource(answer, max_event_size=None) if answer.is_success else ())


class Stream:
    """The events of a turn. Iterate over it, best in a `with` block, which closes the connection.

    The turn goes on without its readers. A connection that breaks is made again, and the stream goes on
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
        """Of the last step that was read whole: behind it another stream can go on."""
        return self._progress.last_event_id

    def resumed(self) -> "Stream":
        """Another stream that goes on where this one was left."""
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


class Resource:
    """A group of methods of the client."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport


class Method(Generic[P, T]):
    """A method that sends the request which `build` makes and returns what it is answered."""

    def __init__(self, build: Callable[P, Request[T]]) -> None:
        self._build = build
        self._name = build.__name__
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, resource: Resource, _: type) -> Callable[P, T]:
        @wraps(self._build)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return resource.transport.run(build(self._build, self._name, *args, **kwargs))

        return method


class Items(Generic[P, T]):
    """A method that iterates over a whole list, asking for page after page."""

    def __init__(self, build: Callable[P, PageRequest[T, Any]]) -> None:
        self._build = build
        self._name = build.__name__
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, resource: Resource, _: type) -> Callable[P, Iterator[T]]:
        @wraps(self._build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return resource.transport.items(build(self._build, self._name, *args, **kwargs))

        return method
