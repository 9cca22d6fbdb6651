"""Streams through nginx, as Debian has it, while the model thinks for longer than nginx waits for an answer."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from memserver.testing.scripted import ScriptedModel, say
from tests.support.client import served
from tests.support.nginx import needs_nginx, started_by
from tests.support.nightly import NIGHTLY
from tests.support.once_held import OnceHeld
from tests.support.server import OneDatabase
from tests.support.servers import free_port, wait_for

TIMEOUT, PING_SECONDS, PINGS = ("60s", 15.0, 5) if NIGHTLY else ("2s", 0.25, 12)
"""nginx's own time limit, our own interval, and a model that takes 75 s; all shorter by day."""
SERVER = """
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {url}; proxy_read_timeout {timeout}; }}
    }}
"""

pytestmark = needs_nginx


@contextmanager
def nginx(folder: Path, url: str) -> Iterator[str]:
    """The address of an nginx in front of another one."""
    port = free_port()
    command = started_by(folder, SERVER.format(port=port, url=url, timeout=TIMEOUT))

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    with subprocess.Popen(command) as process:
        try:
            assert wait_for(listens, 60)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


async def test_streams_outlast_the_time_that_a_proxy_waits_for_a_byte(
    folder: Path, database: OneDatabase
) -> None:
    model = OnceHeld(say("At last."))
    waiting: set[str] = set()

    async def read(http: httpx2.AsyncClient, field: str) -> str:
        agent = (await http.post("/agents", json={})).json()["id"]
        said = {"text": "Hi", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}[field]
        paths = {"messages": "/chat/completions", "input": "/responses"}
        path = paths.get(field, f"/agents/{agent}/messages")
        body = {field: said, "stream": True} | ({"model": agent} if field in paths else {})
        heard = ""
        async with http.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_text():
                heard += piece
                if heard.count(": ping") >= PINGS:
                    waiting.discard(field)
                if not waiting:
                    model.let_go()
        return heard

    fields = ("text", "messages", "input")
    waiting.update(fields)
    with (
        served(database, ScriptedModel(model), stream_ping_seconds=PING_SECONDS) as server,
        nginx(folder, server.url) as url,
    ):
        async with httpx2.AsyncClient(base_url=f"{url}/v1", timeout=120) as http:
            native, chat, response = await asyncio.gather(*(read(http, each) for each in fields))
    assert "event: turn_ended" in native
    assert chat.endswith("data: [DONE]\n\n")
    assert "event: response.completed" in response
    assert "At last." in native
    assert "At last." in response
