"""uvicorn's HTTP on a socket, with bounds: of a request's head and of the times that a client may take.

Without them one connection without a key could send a header without end, or hold its place without sending. What
a plain request costs is some additions: a timer runs only while a request has not arrived whole.
"""

import asyncio
import json
import resource
from asyncio.events import TimerHandle
from enum import Enum
from functools import cache
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from memserver.api.errors import body
from memserver.api.middleware.security_headers import SECURITY_HEADERS
from memserver.errors import BadRequest

MOST_HEAD_BYTES = 65_536
"""Of the request line and the headers together, and of what frames a body's chunks."""
MOST_HEADERS = 128
MOST_PIPELINED = 8
"""Requests that are sent on a connection before the first one is answered."""
MOST_CONNECTIONS = 4096
"""Of a process; fewer where it may open few files, of which a quarter is left to the database and others."""


class _Part(Enum):
    HEAD = "head"
    BODY = "body"
    UNREAD = "unread"
    """A body that has been answered before it was whole."""
    NOTHING = "nothing"


class _HeadTooLarge(Exception):
    """The request line and the headers are larger than they may be, or too many."""


class BoundedHttp(HttpToolsProtocol):
    """One connection; given to uvicorn as its `http`."""

    head_seconds = 10.0
    """From the connection, or the first byte of a later request, to the last one of its headers."""
    body_seconds = 20.0
    body_bytes = 10_000
    """What must arrive of a body in each body_seconds while we read, unless it ends before."""
    linger_seconds = 2.0
    """How long what a client still sends is thrown away, so that it can read why it was refused."""
    write_seconds = 60.0
    """How long a client may read nothing of what waits for it."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._part = _Part.HEAD
        self._framing = self._chunk = self._arrived = 0
        self._refused = self._head_too_large = False
        self._running: RequestResponseCycle | None = None
        self._reading: TimerHandle | None = None
        self._writing: TimerHandle | None = None
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refused = True
            self.transport.write(
                _answer(503, "too_many_connections", "The server has too many connections.")
            )
            self.transport.close()
        else:
            self._wait(self.head_seconds)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_writing()
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._chunk = len(data)
        super().data_received(data)
        if self._is_over:
            return
        if self._part is _Part.NOTHING:
            self._stop_waiting()
            # What came after the answer was the rest of a body, or an empty line.
            if self.cycle.response_complete:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
            return
        self._framing += self._chunk
        if self._framing > MOST_HEAD_BYTES and self._part is not _Part.UNREAD:
            self._refuse_head()
        elif self._reading is None:
            head = self._part is _Part.HEAD
            self._wait(self.head_seconds if head else self.body_seconds)

    @override
    def on_message_begin(self) -> None:
        self._part = _Part.HEAD
        self._framing = 0
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part is not _Part.HEAD:
            return  # a trailer, which nobody reads
        if len(self.headers) >= MOST_HEADERS:
            self._head_too_large = True
            raise _HeadTooLarge
        super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED or self._has_too_large_head():
            self._head_too_large = True
            raise _HeadTooLarge
        self._part = _Part.BODY
        self._framing = self._arrived = 0
        self._stop_waiting()
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._arrived += len(body)
        self._framing = -self._chunk
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._part = _Part.NOTHING
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._part is _Part.BODY and self.cycle.response_complete:
            self._part = _Part.UNREAD
            self._wait(self.linger_seconds)

    @override
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """There is nothing to upgrade to: the request is answered, and the connection ends with it."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self.write_seconds, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        self._stop_writing()
        super().resume_writing()

    @override
    def send_400_response(self, msg: str) -> None:
        """Called where the parser, or one of our checks in it, refuses what came."""
        if self._head_too_large:
            self._refuse_head()
        else:
            self._refuse(400, BadRequest.code, "This is no valid HTTP request.")

    def _has_too_large_head(self) -> bool:
        if self._framing + self._chunk <= MOST_HEAD_BYTES:  # as nearly always
            return False
        return len(self.url) + sum(len(a) + len(b) for a, b in self.headers) > MOST_HEAD_BYTES

    def _refuse_head(self) -> None:
        message = (
            f"The request's line and headers are more than {MOST_HEAD_BYTES} bytes or {MOST_HEADERS} "
            f"headers, or more than {MOST_PIPELINED} requests wait on this connection."
        )
        self._refuse(431, "request_head_too_large", message)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer, if no other answer is on its way, and end the connection."""
        running = self._running
        free = running is None or running.response_complete
        unanswered = (
            running is self.cycle and self._part is _Part.BODY and not self._has_started(running)
        )
        self._refused = True
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        if not (free or unanswered):
            self.transport.close()
            return
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write(_answer(status, code, message))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._wait(self.linger_seconds)

    @staticmethod
    def _has_started(cycle: RequestResponseCycle | None) -> bool:
        return cycle is not None and cycle.response_started

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._reading = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """The time is over in which something had to arrive."""
        self._reading = None
        if self.transport.is_closing():
            return
        if self._refused or self._part is _Part.UNREAD or not self._has_begun:
            self.transport.close()
        elif self._part is _Part.BODY and (self._arrived >= self.body_bytes or self._is_held_up):
            self._arrived = 0
            self._wait(self.body_seconds)
        elif self._part is not _Part.NOTHING:
            self._refuse(408, "request_timeout", "The request did not arrive in time.")

    @property
    def _is_over(self) -> bool:
        return self._refused or self.transport.is_closing()

    @property
    def _has_begun(self) -> bool:
        return self._part is not _Part.HEAD or self._framing > 0

    @property
    def _is_held_up(self) -> bool:
        """Whether the body waits for us, not for the client."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue

    def _stop_waiting(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


@cache
def most_connections() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files < 0 else min(MOST_CONNECTIONS, files * 3 // 4)


def _answer(status: int, code: str, message: str) -> bytes:
    content = json.dumps(body(code, message)).encode()
    headers = {
        **SECURITY_HEADERS,
        b"content-type": b"application/json",
        b"content-length": str(len(content)).encode(),
        b"connection": b"close",
    }
    lines = [b"%s: %s\r\n" % each for each in headers.items()]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n", content])
