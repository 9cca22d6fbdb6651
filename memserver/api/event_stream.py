"""Server-sent events on the wire, for all routes that stream: headers at once, a comment while nothing else comes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Send
from typing_extensions import override

from memserver.storage.repeating import run_beside

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
PING = b": ping\n\n"
"""A comment, which clients skip: so that no proxy takes a connection for dead on which a model thinks."""
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What some clients take for the end of a line beyond the control characters, which JSON escapes anyway."""

HangUp = Callable[[], Awaitable[None]]


def event_data(value: Any) -> str:  # noqa: ANN401 - JSON
    """JSON in one line, whatever its reader takes for a line's end."""
    return in_one_line(json.dumps(value, ensure_ascii=False))


def in_one_line(text: str) -> str:
    """JSON without a character that anybody takes for a line's end."""
    if not text.isascii():
        for end, escaped in _LINE_ENDS.items():
            text = text.replace(end, escaped)
    return text


class EventStream(StreamingResponse):
    def __init__(
        self,
        frames: AsyncIterator[str],
        ping_seconds: float,
        *,
        headers: Mapping[str, str] | None = None,
        on_hang_up: HangUp | None = None,
    ) -> None:
        """Send the frames of events; after `ping_seconds` without one a comment.

        `on_hang_up` is done when the client goes before the end.
        """
        super().__init__(
            frames, media_type="text/event-stream", headers={**HEADERS, **(headers or {})}
        )
        self._ping_seconds = ping_seconds
        self._on_hang_up = on_hang_up
        self._sent_at = 0.0

    @override
    async def listen_for_disconnect(self, receive: Receive) -> None:
        await super().listen_for_disconnect(receive)
        if self._on_hang_up is not None:
            await self._on_hang_up()

    @override
    async def stream_response(self, send: Send) -> None:
        now = asyncio.get_running_loop().time

        async def send_noted(message: Message) -> None:
            self._sent_at = now()
            await send(message)

        async with run_beside(self._ping(send_noted)):
            await super().stream_response(send_noted)

    async def _ping(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        self._sent_at = now()
        while True:
            await asyncio.sleep(self._sent_at + self._ping_seconds - now())
            if now() >= self._sent_at + self._ping_seconds:
                await send({"type": "http.response.body", "body": PING, "more_body": True})
