"""A model endpoint on a real socket that counts: connections, requests at once, and their order."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_CARDS = {"object": "list", "data": [{"id": "stub", "max_model_len": 100_000}]}


class EndpointStub:
    """Answers each prompt with a message that repeats its end, when it is let.

    Attributes:
        arrived: the end of each prompt, in the order in which they came.
        in_flight: prompts that are not answered yet; `most_in_flight`: as many as there ever were.
        connections: over which prompts came; `open_now` of them have not been closed.
        may_answer: prompts wait for it.
        drops: of so many prompts the connection is dropped instead of an answer.
    """

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.connections = 0
        self.open_now = 0
        self.most_open = 0
        self.drops = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.url = ""
        self._changed = asyncio.Condition()
        self._serving: set[asyncio.Task[None]] = set()

    async def until_in_flight(self, count: int) -> None:
        """Wait until so many prompts wait for their answer."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.in_flight >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        asked = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                method, path, body = await _request(reader)
                if path.endswith("/chat/completions"):
                    asked += 1
                    if asked == 1:
                        self.connections += 1
                        self.open_now += 1
                        self.most_open = max(self.most_open, self.open_now)
                    answer = await self._complete(json.loads(body))
                    if answer is None:
                        break
                    status = "200 OK"
                else:
                    known = method == "GET" and path.endswith("/models")
                    status, answer = ("200 OK", _CARDS) if known else ("404 Not Found", {})
                content = json.dumps(answer).encode()
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n"
                writer.write(head.encode() + content)
                await writer.drain()
        self.open_now -= bool(asked)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._serving.discard(task)

    async def ended(self) -> None:
        """Wait until the clients have gone."""
        await asyncio.gather(*self._serving)

    async def _complete(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        text = str(asked["messages"][-1]["content"])
        self.arrived.append(text.partition("] ")[2])
        await self._count(1)
        await self.may_answer.wait()
        await self._count(-1)
        if self.drops:
            self.drops -= 1
            return None
        return _answer(text.partition("] ")[2])

    async def _count(self, change: int) -> None:
        async with self._changed:
            self.in_flight += change
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()


@asynccontextmanager
async def endpoint_stub(port: int = 0) -> AsyncIterator[EndpointStub]:
    """The stub, listening while the block runs; clients must be gone at its end."""
    stub = EndpointStub()
    listening = await asyncio.start_server(stub.serve, "127.0.0.1", port, backlog=1024)
    stub.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield stub
    finally:
        stub.may_answer.set()
        listening.close()
        await stub.ended()


def _answer(text: str) -> dict[str, Any]:
    arguments = json.dumps({"message": f"echo: {text}"})
    function = {"name": "send_message", "arguments": arguments}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method, path, _ = head.split(" ", 2)
    length = 0
    for line in head.lower().split("\r\n"):
        if line.startswith("content-length:"):
            length = int(line.partition(":")[2])
    return method, path, await reader.readexactly(length)
