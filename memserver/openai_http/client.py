"""The connection to an OpenAI-compatible endpoint: bytes of JSON out, plain values back.

aiohttp is used bare, since a client between would cost more than all else in a call.
"""

import asyncio
import http
import io
import math
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

import aiohttp

from memserver.errors import ModelAnswerTooLarge, ModelError, ModelTimeout, ModelUnavailable
from memserver.messages import JsonObject
from memserver.openai_http.circuit import Attempt, Circuit
from memserver.openai_http.endpoint import Endpoint, proxy_of
from memserver.openai_http.errors import (
    FOREIGN,
    StatusError,
    raise_if_error,
    read_at_most,
    status_error,
)
from memserver.openai_http.streams import drain, parse_json, read_stream
from memserver.openai_http.translation import not_json, too_large, translate

_LOST = (
    aiohttp.ClientOSError,
    aiohttp.ClientConnectionResetError,
    aiohttp.ServerDisconnectedError,
    aiohttp.ConnectionTimeoutError,
)
"""No connection, or one that broke before it answered."""
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_CONNECT_SECONDS, _LIST_SECONDS = 10, 15
"""For a connection; for the list of models, which nothing has to be computed for."""
_IDLE_SECONDS = 4
"""How long an unused connection is kept: uvicorn, and so vLLM, drops it after five."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_INLINE = 2**20
"""Bytes of a body that go out in one piece; aiohttp wants longer ones as a file."""
_HEADERS = {"Content-Type": "application/json", "User-Agent": "memserver"}
_Answer = TypeVar("_Answer")
_Batches = AsyncGenerator[list[JsonObject], None]
_retry_until: ContextVar[float | None] = ContextVar("_retry_until", default=None)


@contextmanager
def retrying_until(end: float | None) -> Iterator[None]:
    """No request of this block waits beyond this time of the event loop before it is tried again."""
    token = _retry_until.set(end)
    try:
        yield
    finally:
        _retry_until.reset(token)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: bytes | None = None
    retries_refusals: bool = True
    """Whether a 5xx, 429 or 408 is tried again, and not only a connection."""
    hands_on: bool = False
    """Whether another engine is asked instead: then only a connection that was idle is tried again."""


_LIST = _Request("GET", "/models", retries_refusals=False)


class EndpointClient:
    def __init__(self, endpoint: Endpoint, circuit: Circuit | None = None) -> None:
        """Make it; nothing is asked yet. The circuit is asked before each request, and records how it ended.

        Raises:
            SetupError: the address is no URL, the key can't be sent, or the proxy in front is of an unknown kind.
        """
        self._endpoint = endpoint
        self._address, key = endpoint.address()
        self._headers = _HEADERS | key
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._circuit = circuit or Circuit(failures=sys.maxsize)
        self._proxy = proxy_of(self._address)

    async def models(self) -> list[JsonObject] | None:
        """The cards of the models that the endpoint lists; None where it has no list that can be read.

        Whatever the list is, it says nothing of whether the models answer: the circuit doesn't hear of it.

        Raises:
            ModelError: no connection, no answer in time, a key that is refused (401), or the circuit is open.
        """
        self._circuit.refuse_if_open()
        try:
            return await self._listed()
        except ModelAnswerTooLarge:
            return None
        except ModelError as error:
            if _status_of(error) in {None, 401}:
                raise
            return None

    async def check(self) -> list[JsonObject] | None:
        """As `models`, but asked whatever the circuit says; an answer closes it.

        Raises:
            ModelError: as `models`, and a server's own fault (5xx); it describes the outage, if there is one.
        """
        try:
            cards = await self._listed()
        except ModelError as error:
            status = _status_of(error)
            if status is None or status in {401, 408} or status >= 500:
                if outage := self._circuit.describe():
                    raise type(error)(f"{error.message} {outage}", hint=error.hint) from error
                raise
            cards = None
        self._circuit.record_check()
        return cards

    async def post(self, path: str, body: bytes, *, hands_on: bool = False) -> JsonObject:
        """Send JSON and wait for a JSON object. With `hands_on` a failure is another engine's to make good.

        Raises:
            ModelError: of the kind that `translate` says, or the circuit is open.
        """
        with self._attempt():
            async with self._limits() as limit:
                request = _Request("POST", path, body, hands_on=hands_on)
                return await self._answer(request, limit, self._object)

    async def command(self, path: str, body: bytes) -> None:
        """Send JSON to what answers a success in any form, which is not looked at.

        Raises:
            ModelError: of the kind that `translate` says.
        """
        async with self._limits() as limit:
            await self._answer(_Request("POST", path, body), limit, self._content)

    async def stream(
        self, path: str, body: bytes, *, hands_on: bool = False
    ) -> AsyncGenerator[JsonObject, None]:
        """Send JSON and give the JSON objects of the event stream as they come.

        An answer that came whole instead is one object.

        Raises:
            ModelError: of the kind that `translate` says, no answer came, it ended early, or the circuit is open.
        """
        request = _Request("POST", path, body, hands_on=hands_on)
        with self._attempt() as attempt:
            async with self._limits() as limit:
                response, first, more = await self._answer(request, limit, self._begun)
                async with response, aclosing(more):
                    for event in first:
                        attempt.record_success()
                        yield event
                    async for events in more:
                        for event in events:
                            yield event
                    await drain(response)

    async def aclose(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def _attempt(self) -> Iterator[Attempt]:
        attempt = self._circuit.begin()
        try:
            yield attempt
        except ModelError as error:
            if _is_outage(error, attempt):
                attempt.record_failure(error, lost=_is_lost(error))
            else:
                attempt.record_success()
            raise
        else:
            attempt.record_success()
        finally:
            attempt.end()

    @asynccontextmanager
    async def _limits(self, most: float = math.inf) -> AsyncIterator[asyncio.Timeout]:
        endpoint = self._endpoint
        if most < endpoint.timeout:
            endpoint = replace(endpoint, timeout=most)
        try:
            async with asyncio.timeout(endpoint.timeout) as limit:
                yield limit
        except (StatusError, *FOREIGN) as error:
            raise translate(endpoint, error) from error

    async def _answer(
        self,
        request: _Request,
        limit: asyncio.Timeout,
        read: Callable[[aiohttp.ClientResponse], Awaitable[_Answer]],
    ) -> _Answer:
        """What is read of a success. It is asked for again unless a part of it came."""
        tried = 0
        while True:
            try:
                response = await self._send(request)
            except (StatusError, *_LOST) as error:
                failure: Exception = error
            else:
                try:
                    return await read(response)
                except StatusError as error:  # with 200
                    failure = error
            pause = self._pause(request, failure, tried)
            if pause is None or not _has_time(pause, limit):
                raise failure
            await asyncio.sleep(pause)
            tried += 1

    async def _send(self, request: _Request) -> aiohttp.ClientResponse:
        if self._closed:
            raise ModelUnavailable(f"The connection to the {self._endpoint.title} is closed.")
        session = self._session or self._open_session()
        body = request.body
        data = io.BytesIO(body) if body is not None and len(body) > _INLINE else body
        url = self._address.of(request.path)
        response = await session.request(request.method, url, data=data)
        if 200 <= response.status < 300:
            return response
        async with response:
            raise await status_error(response)

    async def _content(self, response: aiohttp.ClientResponse) -> bytes:
        async with response:
            content = await read_at_most(response, self._endpoint.most_bytes)
        if content is None:
            raise too_large(self._endpoint)
        return content

    async def _object(self, response: aiohttp.ClientResponse) -> JsonObject:
        content = await self._content(response)
        try:
            value = parse_json(content, self._endpoint)
        except (ValueError, RecursionError) as error:
            raise not_json(self._endpoint, content, response.status) from error
        first = value[0] if isinstance(value, list) and value else value  # as Google wraps errors
        if isinstance(first, dict):
            raise_if_error(first)
        if not isinstance(value, dict):
            raise not_json(self._endpoint, content, response.status)
        return value

    async def _begun(
        self, response: aiohttp.ClientResponse
    ) -> tuple[aiohttp.ClientResponse, list[JsonObject], _Batches]:
        """A stream of which the first objects came, so that an error in their place is known."""
        more = read_stream(response, self._endpoint)
        with ExitStack() as stack:
            stack.callback(response.close)
            first: list[JsonObject] = await anext(more, [])
            stack.pop_all()
        return response, first, more

    async def _listed(self) -> list[JsonObject] | None:
        async with self._limits(_LIST_SECONDS) as limit:
            content = await self._answer(_LIST, limit, self._content)
        try:
            return cards_in(parse_json(content, self._endpoint))
        except (ValueError, RecursionError):
            return None

    def _pause(self, request: _Request, error: Exception, tried: int) -> float | None:
        """Seconds to wait before it is tried again; None where that is not to be done."""
        if tried >= self._endpoint.max_retries or isinstance(error, aiohttp.ClientSSLError):
            return None
        if isinstance(error, StatusError):
            passing = type(translate(self._endpoint, error)) in {ModelUnavailable, ModelTimeout}
            if not (passing and request.retries_refusals) or request.hands_on:
                return None
            if error.retry_after is not None:
                return error.retry_after
        elif not tried and not isinstance(error, _NOT_CONNECTED):
            return 0  # most likely the connection was an idle one that the endpoint had dropped
        if request.hands_on:
            return None
        return min(_FIRST_PAUSE * 2.0**tried, _LONGEST_PAUSE) * random.uniform(0.5, 1)

    def _open_session(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._endpoint.connections, keepalive_timeout=_IDLE_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            # `_limits` holds the whole; waiting for a free connection has no limit of its own.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            # Not trust_env: that looks for a proxy and in .netrc again for each request, in threads.
            proxy=self._proxy,
        )
        return self._session


def _is_outage(error: ModelError, attempt: Attempt) -> bool:
    """Whether an error says that the endpoint is down.

    A 429 doesn't: the endpoint is well and says so. Nor does a time limit that ran out in the middle of
    an answer. One that ran out before any does: an endpoint that takes requests and never answers is the
    outage that costs most, since each request holds its place until then.
    """
    if isinstance(error, ModelTimeout):
        return not attempt.has_answered
    return isinstance(error, ModelUnavailable) and _status_of(error) != 429


def _is_lost(error: ModelError) -> bool:
    """Whether nobody is there, or one who says that he can't serve: no request would fare better."""
    return (
        isinstance(error.__cause__, (*_LOST, aiohttp.ClientPayloadError))
        or _status_of(error) == http.HTTPStatus.SERVICE_UNAVAILABLE
    )


def _has_time(pause: float, limit: asyncio.Timeout) -> bool:
    now = asyncio.get_running_loop().time()
    ends = (limit.when(), _retry_until.get())
    return all(end is None or now + pause < end for end in ends)


def _status_of(error: ModelError) -> int | None:
    return getattr(error.__cause__, "status", None)


def cards_in(listed: object) -> list[JsonObject] | None:
    """A card for each model of a list, its name under `id`; None where it is no such list.

    OpenAI has {"data": […]}, Together the list alone, Ollama and Gemini {"models": […]} with `name`.
    """
    if isinstance(listed, dict):
        found = (listed.get(key) for key in ("data", "models"))
        listed = next((each for each in found if isinstance(each, list)), None)
    if not isinstance(listed, list):
        return None
    cards = [card for each in listed if (card := _card(each)) is not None]
    return cards if cards or not listed else None


def _card(listed: object) -> JsonObject | None:
    card = {"id": listed} if isinstance(listed, str) else listed
    if not isinstance(card, dict):
        return None
    names = (card.get(key) for key in ("id", "name", "model"))
    name = next((each for each in names if isinstance(each, str) and each), None)
    return None if name is None else {**card, "id": name}
