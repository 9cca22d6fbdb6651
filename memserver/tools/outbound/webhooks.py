"""Delivering a call to a webhook and reading its answer, whatever that is.

Owns HTTP: connections to allowed addresses only, redirects, retries, the size of an answer. Leaves to
`memserver.tools` what is delivered and what the model is shown.
"""

import asyncio
import json
import logging
import random
import time
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.http import HttpProcessingError

from memserver.errors import InvalidInput, ToolError
from memserver.tools.outbound.addresses import AddressRefused, Networks, check_url, guard_sockets
from memserver.tools.outbound.reasons import for_log, reason
from memserver.tools.outbound.signing import sign

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 10
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_MOST_REDIRECTS = 3
_MOST_BYTES = 1_000_000
"""Of an answer; what is beyond is not read."""
_SHOWN = 500
_AGAIN = frozenset({408, 429})
_GONE = 410
_KEPT_METHOD = frozenset({307, 308})


class WebhookGone(ToolError):
    """It answered 410: nothing is to be sent to it any more."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call on its way: `id` is the same however often it is tried."""

    id: str
    url: str
    secret: str = field(repr=False)
    body: bytes
    retries: int


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content_type: str
    content: bytes
    location: str = ""


class WebhookSender:
    def __init__(self, networks: Networks = ()) -> None:
        self._networks = networks
        self._session: aiohttp.ClientSession | None = None

    async def deliver(self, delivery: Delivery) -> str:
        """Post it, again after a failure that may pass, and give the answer's text.

        It has no time limit of its own.

        Raises:
            ToolError: it failed; the message says why.
            WebhookGone: it answered 410.
        """
        for tried in range(delivery.retries + 1):
            try:
                answer = await self._follow(delivery)
            except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
                if _refused(error):
                    raise ToolError("The webhook's address is not allowed.") from error
                logger.warning("A webhook failed: %s", for_log(delivery.url, error))
                failure = f"The webhook can't be reached: {reason(error) or 'it speaks no HTTP'}."
            else:
                if answer.status < 500 and answer.status not in _AGAIN:
                    return _text(answer)
                failure = _failure(answer)
            if tried < delivery.retries:
                pause = min(_FIRST_PAUSE * 2.0**tried, _LONGEST_PAUSE)
                await asyncio.sleep(pause * random.uniform(0.5, 1))
        times = f" It was tried {delivery.retries + 1} times." if delivery.retries else ""
        raise ToolError(failure + times)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _follow(self, delivery: Delivery) -> _Answer:
        url = delivery.url
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._post(url, delivery)
            if answer.status not in _KEPT_METHOD:
                return answer
            before, url = url, urljoin(url, answer.location)
            if urlsplit(before).scheme == "https" != urlsplit(url).scheme:
                raise ToolError("The webhook redirects from https to another scheme.")
        raise ToolError(f"The webhook redirects more than {_MOST_REDIRECTS} times.")

    async def _post(self, url: str, delivery: Delivery) -> _Answer:
        try:
            check_url(url, self._networks)
        except InvalidInput as error:  # a redirect's, or the settings have changed
            raise ToolError("The webhook's address is not allowed.") from error
        headers = sign(delivery.secret, delivery.id, int(time.time()), delivery.body)
        headers["Content-Type"] = "application/json"
        session = self._session or self._open_session()
        async with session.post(
            url, data=delivery.body, headers=headers, allow_redirects=False
        ) as response:
            return _Answer(
                response.status,
                response.content_type,
                await _read_limited(response.content),
                response.headers.get("Location", ""),
            )

    def _open_session(self) -> aiohttp.ClientSession:
        """Make the session, in the loop that uses it; no proxy stands between, so that the check counts."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                socket_factory=guard_sockets(self._networks), keepalive_timeout=4
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "memserver"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            trust_env=False,
        )
        return self._session


async def _read_limited(stream: aiohttp.StreamReader) -> bytes:
    read = bytearray()
    async for chunk in stream.iter_any():
        read += chunk
        if len(read) > _MOST_BYTES:
            raise ToolError(f"The webhook's answer has more than {_MOST_BYTES} bytes.")
    return bytes(read)


def _text(answer: _Answer) -> str:
    """What the webhook says: JSON, or any text."""
    if not 200 <= answer.status < 300:
        raise (WebhookGone if answer.status == _GONE else ToolError)(_failure(answer))
    try:
        text = answer.content.decode()
    except UnicodeDecodeError as error:
        raise ToolError("The webhook answered with bytes that are no text.") from error
    if answer.content_type != "application/json":
        return text
    try:
        value = json.loads(text) if text.strip() else ""
    except (ValueError, RecursionError) as error:
        raise ToolError("The webhook answered with invalid JSON.") from error
    return value if isinstance(value, str) else text


def _failure(answer: _Answer) -> str:
    if 300 <= answer.status < 400:
        return f"The webhook answered {answer.status}, a redirect that does not keep the POST."
    said = answer.content[:_SHOWN].decode(errors="replace").strip()
    return f"The webhook answered {answer.status}{f': {said}' if said else '.'}"


def _refused(error: BaseException) -> bool:
    inner = getattr(error, "os_error", error)
    return isinstance(inner, AddressRefused)
