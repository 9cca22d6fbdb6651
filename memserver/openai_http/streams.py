"""Streamed answers: the JSON objects in them as they come, and whether they came to their end.

Where a stream was requested, server-sent events are understood, and whole answers, lines of JSON and errors that come
instead.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress

import aiohttp
from pydantic_core import PydanticSerializationError, to_json

from memserver.errors import ModelError, ModelUnavailable
from memserver.messages import JsonObject, JsonValue
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.errors import FOREIGN, StatusError, raise_if_error, read_at_most
from memserver.openai_http.translation import STREAMED, ended_early, not_json, too_large

_MARKS = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark and blanks, which may come before an answer."""
_DRAIN_SECONDS, _DRAINED = 0.25, 2**20
_HEAD = 4000
"""Bytes that are kept of a stream without an event, for what they say."""


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


async def read_stream(
    response: aiohttp.ClientResponse, endpoint: Endpoint
) -> AsyncGenerator[list[JsonObject], None]:
    """The objects of a streamed answer, those of each piece together; it ends with [DONE] or the answer.

    Raises:
        StatusError: an error came instead.
        ModelUnavailable: it is no answer, or it broke off.
        ModelAnswerTooLarge: it has more bytes or values than are read.
    """
    reader, received = _Reader(endpoint, response.status), 0
    events: list[JsonObject] = []
    try:
        async for chunk in response.content.iter_any():
            received += len(chunk)
            if received > STREAMED * endpoint.most_bytes:
                raise too_large(endpoint)
            reader.feed(chunk, events)
            if events:
                yield events
                events = []
            if reader.is_done:
                return
        reader.end(events)
    except (StatusError, ModelError):
        if events:
            yield events  # what came before it
        raise
    if events:
        yield events


async def drain(response: aiohttp.ClientResponse) -> None:
    with suppress(*FOREIGN):
        async with asyncio.timeout(_DRAIN_SECONDS):
            await read_at_most(response, _DRAINED)


def parse_json(content: bytes, endpoint: Endpoint) -> object:
    """JSON. Raises ValueError or RecursionError, and ModelAnswerTooLarge for more values than are read."""
    most = endpoint.most_values
    if len(content) > most and sum(map(content.count, (b",", b":", b"[", b"{"))) > most:
        raise too_large(endpoint)
    return json.loads(content)


def json_bytes(value: JsonValue) -> bytes:
    """JSON as it is sent; a lone surrogate, which has no bytes, becomes "?"."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace")


class _Reader:
    """Understands the pieces of one answer. Its first byte says whether it is one of events."""

    def __init__(self, endpoint: Endpoint, status: int) -> None:
        self._endpoint = endpoint
        self._status = status
        self._events = EventParser()
        self._body = bytearray()
        """All of an answer that is none of events, else its head until an event came."""
        self._has_events: bool | None = None
        self._came = False
        self._finished = False
        self.is_done = False
        """[DONE] came."""

    def feed(self, chunk: bytes, events: list[JsonObject]) -> None:
        if self._has_events is None:
            chunk = chunk.lstrip(_MARKS)
            if not chunk:
                return
            self._has_events = not chunk.startswith((b"{", b"[", b"<"))
        if not self._has_events or (not self._came and len(self._body) < _HEAD):
            self._body += chunk
        waiting = self._events.waiting + len(chunk) if self._has_events else len(self._body)
        if waiting > self._endpoint.most_bytes:
            raise too_large(self._endpoint)
        if self._has_events:
            self._take(self._events.feed(chunk), events)

    def end(self, events: list[JsonObject]) -> None:
        """Add what the end of the bytes completes. Raises where it is not the answer's end."""
        if not self._has_events:
            self._take_whole(events)
            return
        last = self._events.feed(b"\n\n")  # many servers leave out the last line break
        with suppress(ModelUnavailable):  # it breaks off within an event
            self._take(last, events)
        said = [line for line in self._body.splitlines() if not line.startswith(b":")]
        if not (self._came or self.is_done or any(line.startswith(b"data") for line in said)):
            raise not_json(self._endpoint, b"\n".join(said), self._status)
        if not self._finished and not self.is_done:
            raise ended_early(self._endpoint)

    def _take(self, found: list[bytes], events: list[JsonObject]) -> None:
        for data in found:
            if data.startswith(b"[DONE]"):
                self.is_done = True
                return
            event = self._parsed(data)
            if isinstance(event, dict):
                self._look_at(event)
                self._came = True
                events.append(event)

    def _look_at(self, event: JsonObject) -> None:
        """Raise the error that came instead; note whether the answer's end came."""
        choices = event.get("choices")
        if not choices or not isinstance(choices, list) or "error" in event:
            raise_if_error(event)
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                if choice.get("finish_reason"):
                    self._finished = True
                if "error" in choice:
                    raise_if_error(event)

    def _take_whole(self, events: list[JsonObject]) -> None:
        body = bytes(self._body.strip(_MARKS))
        try:
            value = parse_json(body, self._endpoint)
            values = value if isinstance(value, list) else [value]
        except (ValueError, RecursionError):
            values = self._lines(body)
        objects = [each for each in values if isinstance(each, dict)]
        for each in objects:
            self._look_at(each)
        if not any(each.get("choices") for each in objects):
            raise not_json(self._endpoint, body, self._status)
        events.extend(objects)
        if len(objects) > 1 and not self._finished:
            raise ended_early(self._endpoint)

    def _lines(self, body: bytes) -> list[object]:
        values: list[object] = []
        for line in filter(None, body.splitlines()):
            try:
                values.append(self._parsed(line))
            except ModelUnavailable as error:
                raise ended_early(self._endpoint) if values else error from None
        return values

    def _parsed(self, data: bytes) -> object:
        try:
            return parse_json(data, self._endpoint)
        except (ValueError, RecursionError) as error:
            raise not_json(self._endpoint, bytes(self._body) or data, self._status) from error
