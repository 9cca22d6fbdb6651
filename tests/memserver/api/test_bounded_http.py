"""What one connection can take of the server without a key: a bounded head, a bounded time, and nothing else.

Spoken over raw sockets. A read that ends is the server's own doing; nothing here waits by the clock.
"""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from memserver.api import bounded_http
from memserver.api.bounded_http import MOST_HEAD_BYTES, MOST_HEADERS, MOST_PIPELINED, BoundedHttp
from tests.support.http_app import serving

LINE = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
PLENTY = 10_000_000
"""Bytes that no server should take in a head."""


class Impatient(BoundedHttp):
    head_seconds = body_seconds = 0.2
    linger_seconds = 0.1


class Patient(BoundedHttp):
    """Whose time is never over, so that a bound of size is what ends a connection."""

    head_seconds = body_seconds = 3600


class App:
    """Answers the body's length, or at once without reading it; knows who went away."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.asked.append(scope["path"])
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            self.left.append(scope["path"])
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.url.path == "/at-once":
            return PlainTextResponse("no", 401)
        if request.url.path == "/endless":
            return StreamingResponse(iter(lambda: b"x" * 65_536, b""))
        return PlainTextResponse(f"{len(await request.body())} bytes")


@contextmanager
def connected(app: App, http: type[BoundedHttp]) -> Iterator[socket.socket]:
    with serving(app, http=http) as url, connect(url) as sock:
        yield sock


def connect(url: str) -> socket.socket:
    where = urlsplit(url)
    return socket.create_connection((where.hostname, where.port), timeout=30)


def send(sock: socket.socket, data: bytes) -> int:
    """Send as much as is taken; how much that was."""
    sent = 0
    try:
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65_536])
    except OSError:
        pass
    return sent


def rest(sock: socket.socket) -> bytes:
    """All that comes until the server ends it."""
    read = b""
    try:
        while more := sock.recv(65_536):
            read += more
    except ConnectionResetError:
        pass
    return read


def refusals(read: bytes) -> list[tuple[int, str]]:
    """The statuses and codes in what was read."""
    statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3})", read)]
    codes = re.findall(rb'"code": "(\w+)"', read)
    return list(zip(statuses, (each.decode() for each in codes), strict=False))


ENDLESS = {
    "a header's value": LINE + b"X: " + b"a" * PLENTY,
    "a header's name": LINE + b"a" * PLENTY,
    "a path": b"GET /" + b"a" * PLENTY,
    "a query": b"GET /?" + b"a=b&" * (PLENTY // 4),
    "a method": b"A" * PLENTY,
    "headers": LINE + b"a: b\r\n" * (PLENTY // 6),
    "headers without a value": LINE + b"a:\r\n" * (PLENTY // 4),
    "a header that goes on": LINE + b"X: a\r\n" + b" b\r\n" * (PLENTY // 4),
    "empty lines and then a head": b"\r\n" * 100 + LINE + b"X: " + b"a" * PLENTY,
    "a chunk's extension": POST + b"Transfer-Encoding: chunked\r\n\r\n1;a=" + b"b" * PLENTY,
    "a chunk's length": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * PLENTY,
    "trailers": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * (PLENTY // 6),
    "a trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\na: " + b"b" * PLENTY,
}


@pytest.mark.parametrize("data", ENDLESS.values(), ids=ENDLESS)
def test_what_frames_a_request_can_not_continue_without_end(data: bytes) -> None:
    app = App()
    with connected(app, Patient) as sock:
        send(sock, data)
        read = rest(sock)
    assert app.asked in ([], ["/"])
    assert app.left == app.asked
    for refusal in refusals(read):  # an answer may be lost when what was sent is thrown away
        assert refusal in ((431, "request_head_too_large"), (400, "bad_request"))


def test_a_head_that_just_fits_is_taken_and_one_that_does_not_is_refused_however_it_is_cut() -> (
    None
):
    room = MOST_HEAD_BYTES - 100
    with serving(App(), http=Patient) as url:
        for size, status in ((room, 200), (MOST_HEAD_BYTES, 431)):
            for piece in (1_000_000, 4_000):
                data = LINE + b"X: " + b"a" * size + b"\r\nConnection: close\r\n\r\n"
                with connect(url) as sock:
                    for at in range(0, len(data), piece):
                        send(sock, data[at : at + piece])
                    assert rest(sock).startswith(b"HTTP/1.1 %d" % status), (size, piece)


@pytest.mark.parametrize(("count", "status"), [(MOST_HEADERS - 2, 200), (MOST_HEADERS, 431)])
def test_headers_are_counted(count: int, status: int) -> None:
    data = LINE + b"a:b\r\n" * count + b"Connection: close\r\n\r\n"
    with connected(App(), Patient) as sock:
        send(sock, data)
        read = rest(sock)
    assert read.startswith(b"HTTP/1.1 %d" % status)
    assert b"\r\nx-content-type-options: nosniff\r\n" in read or status == 200


UNFINISHED = {
    "nothing": (b"", None),
    "a line": (LINE, 408),
    "half a line": (b"GET /v1/hea", 408),
    "a header without its end": (LINE + b"X: a", 408),
    "a head but for its last byte": (LINE + b"\r\n"[:1], 408),
    "a body that never comes": (POST + b"Content-Length: 10\r\n\r\n", 408),
    "a body that stops": (POST + b"Content-Length: 10\r\n\r\n12345", 408),
    "a chunked body that stops": (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", 408),
}


def test_what_does_not_arrive_in_time_is_ended() -> None:
    app = App()
    with serving(app, http=Impatient) as url:
        socks = {name: connect(url) for name in UNFINISHED}
        for name, (data, _) in UNFINISHED.items():
            send(socks[name], data)
        for name, (_, status) in UNFINISHED.items():
            expected = [] if status is None else [(status, "request_timeout")]
            assert refusals(rest(socks[name])) == expected, name
            socks[name].close()
    assert app.left == app.asked == ["/"] * 3  # who waited for the body was asked for it


def test_a_second_request_on_a_connection_has_the_same_time() -> None:
    with connected(App(), Impatient) as sock:
        send(sock, LINE + b"\r\n")
        first = sock.recv(65_536)
        send(sock, LINE)
        read = rest(sock)
    assert first.startswith(b"HTTP/1.1 200")
    assert refusals(read) == [(408, "request_timeout")]


def test_two_hundred_connections_that_never_finish_their_head_are_all_ended() -> None:
    class Waiting(Impatient):
        head_seconds = 1.0

    with serving(App(), http=Waiting) as url:
        socks = []
        for _ in range(200):
            socks.append(connect(url))
            send(socks[-1], LINE)
        answers = [refusals(rest(sock)) for sock in socks]
        for sock in socks:
            sock.close()
    assert answers == [[(408, "request_timeout")]] * 200


def test_a_body_that_comes_fast_enough_may_take_longer_than_one_period() -> None:
    class Steady(Impatient):
        body_bytes = 1
        looks = 0

        @override
        def _look(self) -> None:
            super()._look()
            Steady.looks += 1
            if Steady.looks < 4:
                more.sendall(b"1")

    with connected(App(), Steady) as more:
        send(more, POST + b"Content-Length: 4\r\nConnection: close\r\n\r\n1")
        read = rest(more)
    assert read.endswith(b"4 bytes")
    assert Steady.looks == 3


def test_who_waits_to_be_asked_for_the_body_is_not_too_slow() -> None:
    class Late(App):
        @override
        async def _answer(self, request: Request) -> Response:
            await looked.wait()
            return await super()._answer(request)

    looked = asyncio.Event()

    class Watched(Impatient):
        @override
        def _look(self) -> None:
            super()._look()
            looked.set()

    with connected(Late(), Watched) as sock:
        send(sock, POST + b"Content-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        asked = sock.recv(65_536)
        send(sock, b"1234")
        read = rest(sock)
    assert asked.startswith(b"HTTP/1.1 100")
    assert read.endswith(b"4 bytes")


def test_a_body_that_is_answered_before_it_came_keeps_no_connection() -> None:
    data = b"POST /at-once HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
    with connected(App(), Impatient) as sock:
        send(sock, data + b"12345")
        read = rest(sock)
    assert read.startswith(b"HTTP/1.1 401")


def test_an_empty_line_after_an_answer_does_not_hold_the_connection_open() -> None:
    class Brief(Impatient):
        @override
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.timeout_keep_alive = 0  # one turn of the loop
            super().connection_made(transport)

        @override
        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._unset_keepalive_if_required()  # as an empty line does that comes just before

    with connected(App(), Brief) as sock:
        send(sock, LINE + b"\r\n")
        answer = sock.recv(65_536)
        while not answer.endswith(b"0 bytes"):
            answer += sock.recv(65_536)
        send(sock, b"\r\n")
        read = rest(sock)
    assert read == b""


def test_who_reads_nothing_of_an_answer_is_cut_off() -> None:
    lost = threading.Event()

    class Stalled(Impatient):
        write_seconds = 0.2

        @override
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    with connected(App(), Stalled) as sock:
        send(sock, b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert lost.wait(30)


def test_too_many_pipelined_requests_end_the_connection() -> None:
    app = App()
    with connected(app, Patient) as sock:
        send(sock, (LINE + b"\r\n") * 10_000)
        rest(sock)
    assert len(app.asked) <= MOST_PIPELINED + 2


def test_a_few_pipelined_requests_are_answered_in_order() -> None:
    with connected(App(), Patient) as sock:
        first = POST + b"Content-Length: 3\r\n\r\nabc"
        send(sock, first + POST + b"Content-Length: 1\r\nConnection: close\r\n\r\na")
        read = rest(sock)
    assert re.findall(rb"\d bytes", read) == [b"3 bytes", b"1 bytes"]


def test_connections_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "most_connections", lambda: 3)
    with serving(App(), http=Patient) as url:
        socks = [connect(url) for _ in range(3)]
        for sock in socks:
            send(sock, LINE + b"\r\n")
            assert sock.recv(65_536).startswith(b"HTTP/1.1 200")
        with connect(url) as one_more:
            assert refusals(rest(one_more)) == [(503, "too_many_connections")]
        for sock in socks:
            sock.close()


ODD = {
    "both lengths": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, the other way": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    ),
    "two lengths": POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "a length with a sign": POST + b"Content-Length: +4\r\n\r\nabcd",
    "a negative length": POST + b"Content-Length: -4\r\n\r\nabcd",
    "a hexadecimal length": POST + b"Content-Length: 0x4\r\n\r\nabcd",
    "a huge length": POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 4, 4\r\n\r\nabcd",
    "chunked, but not at last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a chunk's length that is none": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a chunk longer than it says": POST
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
    "a NUL in a header": LINE + b"X: a\0b\r\n\r\n",
    "a bare carriage return": LINE + b"X: a\rb\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a path that is no ASCII": b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
}


def test_what_is_no_clear_request_is_refused_and_ends_the_connection() -> None:
    with serving(App(), http=Impatient) as url:
        for name, data in ODD.items():
            with connect(url) as sock:
                send(sock, data + LINE + b"\r\n")
                read = rest(sock)
            assert refusals(read) == [(400, "bad_request")], (name, read)


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"nonsense"])
def test_there_is_nothing_to_upgrade_to(protocol: bytes) -> None:
    upgrade = LINE + b"Connection: Upgrade\r\nUpgrade: %s\r\n" % protocol
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    app = App()
    with connected(app, Impatient) as sock:
        send(sock, upgrade + LINE + b"\r\n")
        read = rest(sock)
    assert read.startswith(b"HTTP/1.1 200")
    assert app.asked == ["/v1/health"]


def test_an_old_client_is_answered_and_its_connection_closed() -> None:
    with connected(App(), Patient) as sock:
        send(sock, b"GET / HTTP/1.0\r\n\r\n")
        read = rest(sock)
    assert read.startswith(b"HTTP/1.1 200")


def test_a_trailer_is_no_header() -> None:
    seen: list[list[bytes]] = []

    class Looking(App):
        @override
        async def _answer(self, request: Request) -> Response:
            response = await super()._answer(request)
            seen.append([name for name, _ in request.scope["headers"]])
            return response

    with connected(Looking(), Impatient) as sock:
        send(sock, POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n")
        send(sock, b"Authorization: Bearer a\r\n\r\n")
        read = rest(sock)
    assert read.endswith(b"1 bytes")
    assert seen == [[b"host", b"transfer-encoding", b"connection"]]
