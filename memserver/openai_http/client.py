"""The connection to an OpenAI-compatible endpoint: bytes of JSON out, plain values back.

Owns HTTP: connections, time limits, retries, proxies, server-sent events. Leaves the errors of them to
`endpoint_errors`, and what is asked and what an answer means to those who ask: `llm` and `embeddings`.
aiohttp is used bare, since a client between would cost more than all else in a call.
"""

import asyncio
import io
import json
import math
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from memserver.errors import ModelError, ModelTimeout, ModelUnavailable, SetupError
from memserver.messages import JsonObject
from memserver.openai_http.circuit import Attempt, Circuit
from memserver.openai_http.errors import (
    FOREIGN,
    STREAMED,
    StatusError,
    not_json,
    raise_if_error,
    read_at_most,
    status_error,
    too_large,
    translated,
)

AGENT_HEADER = "X-Memserver-Agent"
"""For which agent something is asked, if the endpoint is to be told."""
_asking_for: ContextVar[str] = ContextVar("asking_for", default="")

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
_FIRST_PAUSE, _LONGEST_PAUSE, _DRAIN_SECONDS = 0.5, 8.0, 0.25
_INLINE = 2**20
"""Bytes of a body that go out in one piece; aiohttp wants longer ones as a file."""
_HEADERS = {"Content-Type": "application/json", "User-Agent": "memserver"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an endpoint is and how it is spoken to.

    Attributes:
        base_url: ending in /v1.
        api_key: empty where none is wanted.
        timeout: seconds for a whole answer, from the request to the last byte, retries and the pauses
            between them included.
        max_retries: after a failed connection, a 5xx, 429 or 408, before anything was answered.
        title: what errors call it.
        variables: how the settings' names start that hints tell of.
        remedy: what to do when it fails, where no setting leads to it; instead of hints at settings.
        connections: how many there are at once, at most; 0 leaves that to who bounds the requests.
        told_agent: requests name the agent that they are made for, in AGENT_HEADER.
        most_bytes: of an answer, and of one event of a stream.
        most_values: in them, counted by commas, colons and brackets: the parser lets nothing else run.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    timeout: float = 120
    max_retries: int = 1
    title: str = "model's endpoint"
    variables: str = "MEMSERVER_LLM"
    remedy: str = ""
    connections: int = 100
    told_agent: bool = False
    most_bytes: int = 8_000_000
    most_values: int = 500_000


@contextmanager
def asking_for(agent: str) -> Iterator[None]:
    """What is asked of endpoints in this block is asked for this agent."""
    token = _asking_for.set(agent)
    try:
        yield
    finally:
        _asking_for.reset(token)


class EndpointClient:
    """Speaks JSON with an endpoint over connections that it keeps."""

    def __init__(self, endpoint: Endpoint, circuit: Circuit | None = None) -> None:
        """Make it; nothing is asked yet.

        Args:
            endpoint: where it is.
            circuit: is told how requests end, and asked before each; None lets all through.

        Raises:
            SetupError: the address is no URL, or the proxy in front of it is of an unknown kind.
        """
        self._endpoint = endpoint
        self._base = endpoint.base_url.rstrip("/")
        self._headers = dict(_HEADERS)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._circuit = circuit or Circuit(failures=sys.maxsize)
        try:
            parts = urlsplit(self._base)
            self._proxy = _proxy(parts)
        except ValueError as error:
            raise SetupError(
                f"The address of the {endpoint.title} is no URL: {error}",
                hint=f"Mend {endpoint.variables}_BASE_URL: http://host:port/v1.",
            ) from error
        if endpoint.api_key and parts.username is None:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key}"

    async def models(self) -> list[JsonObject] | None:
        """The cards of the models that the endpoint lists; None where it has no such list.

        Raises:
            ModelError: of the kind that `translated` says, or the circuit is open.
        """
        with self._attempt():
            return await self._models()

    async def check(self) -> list[JsonObject] | None:
        """As `models`, but asked whatever the circuit says; an answer closes it.

        Raises:
            ModelError: of the kind that `translated` says; it tells of the outage, if there is one.
        """
        try:
            cards = await self._models()
        except ModelError as error:
            if story := self._circuit.story():
                raise type(error)(f"{error.message} {story}", hint=error.hint) from error
            raise
        self._circuit.seen_up()
        return cards

    async def _models(self) -> list[JsonObject] | None:
        async with self._limits(_LIST_SECONDS) as limit:
            try:
                content = await self._whole("GET", "/models", None, limit)
            except StatusError as error:
                if error.status == 404:
                    return None
                raise
        listed = self._object(content).get("data")
        if not isinstance(listed, list):
            raise not_json(self._endpoint)
        return [card for card in listed if isinstance(card, dict)]

    async def post(self, path: str, body: bytes) -> JsonObject:
        """Send JSON and wait for a JSON object.

        Raises:
            ModelError: of the kind that `translated` says, or the circuit is open.
        """
        with self._attempt():
            async with self._limits() as limit:
                content = await self._whole("POST", path, body, limit)
            return self._object(content)

    async def command(self, path: str, body: bytes) -> None:
        """Send JSON to what answers a success in any form, which is not looked at.

        Raises:
            ModelError: of the kind that `translated` says.
        """
        async with self._limits() as limit:
            await self._whole("POST", path, body, limit)

    async def stream(self, path: str, body: bytes) -> AsyncGenerator[JsonObject, None]:
        """Send JSON and give the JSON objects of the event stream as they come.

        Raises:
            ModelError: of the kind that `translated` says, or the circuit is open.
        """
        parser = EventParser()
        most, received = self._endpoint.most_bytes, 0
        with self._attempt() as attempt:
            async with (
                self._limits() as limit,
                await self._opened("POST", path, body, limit) as response,
            ):
                async for chunk in response.content.iter_any():
                    received += len(chunk)
                    if received > STREAMED * most or parser.waiting + len(chunk) > most:
                        raise too_large(self._endpoint)
                    for data in parser.feed(chunk):
                        if data.startswith(b"[DONE]"):
                            await _drain(response)
                            return
                        event = self._parsed(data)
                        if isinstance(event, dict):
                            raise_if_error(event)
                            attempt.answered()
                            yield event

    async def aclose(self) -> None:
        """Give back the connections; what is still asked fails."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def _attempt(self) -> Iterator[Attempt]:
        """Ask the circuit, and tell it how the request ended."""
        attempt = self._circuit.begin()
        try:
            yield attempt
        except ModelError as error:
            if _is_outage(error, attempt):
                attempt.failed(error)
            else:
                attempt.answered()
            raise
        else:
            attempt.answered()
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
            raise translated(endpoint, error) from error

    async def _whole(
        self, method: str, path: str, body: bytes | None, limit: asyncio.Timeout
    ) -> bytes:
        async with await self._opened(method, path, body, limit) as response:
            content = await read_at_most(response, self._endpoint.most_bytes)
            if content is None:
                raise too_large(self._endpoint)
            return content

    async def _opened(
        self, method: str, path: str, body: bytes | None, limit: asyncio.Timeout
    ) -> aiohttp.ClientResponse:
        """A success of which nothing but the head was read; until then it may be tried again."""
        tried = 0
        while True:
            try:
                return await self._tried(method, path, body)
            except (StatusError, *_LOST) as error:
                pause = self._pause(error, tried)
                end = limit.when()
                if pause is None or (end and asyncio.get_running_loop().time() + pause >= end):
                    raise
            await asyncio.sleep(pause)
            tried += 1

    async def _tried(self, method: str, path: str, body: bytes | None) -> aiohttp.ClientResponse:
        if self._closed:
            raise ModelUnavailable(f"The connection to the {self._endpoint.title} is closed.")
        session = self._session or self._open_session()
        data = io.BytesIO(body) if body is not None and len(body) > _INLINE else body
        agent = _asking_for.get() if self._endpoint.told_agent else ""
        headers = {AGENT_HEADER: agent} if agent else None
        response = await session.request(method, self._base + path, data=data, headers=headers)
        if 200 <= response.status < 300:
            return response
        async with response:
            raise await status_error(response)

    def _pause(self, error: Exception, tried: int) -> float | None:
        """Seconds to wait before it is tried again; None where that is not to be done."""
        if tried >= self._endpoint.max_retries or isinstance(error, aiohttp.ClientSSLError):
            return None
        if isinstance(error, StatusError):
            if type(translated(self._endpoint, error)) not in {ModelUnavailable, ModelTimeout}:
                return None
            if error.retry_after is not None:
                return error.retry_after
        elif not tried and not isinstance(error, _NOT_CONNECTED):
            return 0  # most likely the connection was an idle one that the endpoint had dropped
        return min(_FIRST_PAUSE * 2.0**tried, _LONGEST_PAUSE) * random.uniform(0.5, 1)

    def _open_session(self) -> aiohttp.ClientSession:
        """Make the session, in the loop that uses it."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._endpoint.connections, keepalive_timeout=_IDLE_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            # `_limits` holds the whole; waiting for a free connection has no limit of its own.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            # Not trust_env: that looks for a proxy and in .netrc anew for each request, in threads.
            proxy=self._proxy,
        )
        return self._session

    def _parsed(self, content: bytes) -> Any:  # noqa: ANN401 - it is JSON
        if sum(map(content.count, (b",", b":", b"[", b"{"))) > self._endpoint.most_values:
            raise too_large(self._endpoint)
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise not_json(self._endpoint) from error

    def _object(self, content: bytes) -> JsonObject:
        value = self._parsed(content)
        if not isinstance(value, dict):
            raise not_json(self._endpoint)
        return value


class EventParser:
    """Takes the data out of server-sent events that come in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_return = False
        self.waiting = 0
        """Bytes, about, of an event that has not ended."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that end in this piece; an event without data is none."""
        before = self._rest
        text = before + (chunk.removeprefix(b"\n") if self._after_return else chunk)
        self._after_return = chunk.endswith(b"\r")
        lines = text.splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        found, held = [], self.waiting - len(before)
        for ended in lines:
            line = ended.rstrip(b"\r\n")
            name, _, value = line.partition(b":")
            if name.removeprefix(b"\xef\xbb\xbf") == b"data":
                self._data.append(value.removeprefix(b" "))
                held += len(ended)
            elif not line:
                found.append(b"\n".join(self._data))
                self._data, held = [], 0
        self.waiting = held + len(self._rest)
        return [data for data in found if data]


def _is_outage(error: ModelError, attempt: Attempt) -> bool:
    """Whether an error says that the endpoint is down.

    A 429 doesn't: the endpoint is well and says so. Nor does a time limit that ran out in the middle of
    an answer. One that ran out before any does: an endpoint that takes requests and never answers is the
    outage that costs most, since each request holds its place until then.
    """
    if isinstance(error, ModelTimeout):
        return not attempt.has_answered
    cause = error.__cause__
    return isinstance(error, ModelUnavailable) and getattr(cause, "status", None) != 429


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read to the end, which is near, so that the connection can be used again."""
    with suppress(*FOREIGN):
        async with asyncio.timeout(_DRAIN_SECONDS):
            await read_at_most(response, _INLINE)


def _proxy(parts: SplitResult) -> str | None:
    """The proxy that the environment, or the system, names for this address; none for this machine.

    Raises ValueError where the address is no URL, SetupError for a proxy that aiohttp can't speak to.
    """
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    if _is_here(host) or proxy_bypass(f"{host}{port}"):
        return None
    known = getproxies()
    proxy = known.get(parts.scheme) or known.get("all")
    if not proxy:
        return None
    scheme, separated, _ = proxy.partition("://")
    if separated and scheme.lower() not in {"http", "https"}:
        raise SetupError(
            f"The proxy for {host} is of the kind {scheme}, which is not supported.",
            hint="Name an HTTP proxy in HTTP_PROXY or HTTPS_PROXY, or the host in NO_PROXY.",
        )
    return proxy if separated else f"http://{proxy}"


def _is_here(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return not host or host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified
