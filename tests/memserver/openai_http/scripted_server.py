"""A server that follows a script, byte by byte, and a client that asks it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b""


def status(code: int, retry_after: str = "0", body: str = "{}") -> bytes:
    head = f"HTTP/1.1 {code} Status\r\nRetry-After: {retry_after}\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


def whole(body: str | bytes, kind: str = "application/json", code: int = 200) -> bytes:
    text = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {code} Status\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


def refusal(code: int, body: object, **headers: object) -> bytes:
    """An error as JSON, with further headers: `retry_after` is Retry-After."""
    text = json.dumps(body).encode()
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {code} Status", *lines, f"Content-Length: {len(text)}"])
    return head.encode() + b"\r\n\r\n" + text


def chunked(text: bytes) -> bytes:
    return f"{len(text):x}\r\n".encode() + text + b"\r\n"


class Scripted:
    """Answers each request with the next bytes; none, or bytes that end early, close the connection."""

    def __init__(self, *answers: bytes | tuple[bytes, ...]) -> None:
        self.answers = list(answers)
        self.requests = 0
        self.connections = 0
        self.serving: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self.answer_one(reader, writer):
                pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length: " in head:
            length = head.partition(b"content-length: ")[2].partition(b"\r")[0]
            await reader.readexactly(int(length))
        self.requests += 1
        answer = self.answers.pop(0)
        for part in (answer,) if isinstance(answer, bytes) else answer:
            if not part:
                return False
            writer.write(part)
            await writer.drain()
        return True

    async def ended(self) -> None:
        """Wait until the clients have gone."""
        await asyncio.gather(*filter(None, self.serving))


@asynccontextmanager
async def asking(
    server: Scripted, *, retries: int = 1, within: float = 5, circuit: Circuit | None = None
) -> AsyncIterator[EndpointClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = EndpointClient(
        Endpoint(f"http://127.0.0.1:{port}/v1", max_retries=retries, timeout=within), circuit
    )
    try:
        yield client
    finally:
        await client.aclose()
        listening.close()
        await server.ended()


async def listened(client: EndpointClient) -> list[object]:
    return [event async for event in client.stream("/x", b"{}")]
