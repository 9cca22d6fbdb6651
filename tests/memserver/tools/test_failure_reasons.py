"""What a webhook or an MCP server that fails says to the model and to the tenant: nothing of where it is."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, serving

HERE = "127.0.0.1/32"
WEBHOOK = {
    "kind": "webhook",
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object"},
    "retries": 0,
}
SECRET = "hunter2"
INTERNAL = "10.20.30.40"
REDIRECT = (
    f"HTTP/1.1 307 Moved\r\nLocation: http://{INTERNAL}/{SECRET}\r\nContent-Length: 0\r\n\r\n"
)
ANSWERS = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9\r\n\r\n",
    "a broken header": b"HTTP/1.1 200 OK\r\nX" + b"x" * 100_000 + b"\r\n\r\n",
    "a body that breaks off": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "a redirect inside": REDIRECT.encode(),
    "a redirect to nonsense": b"HTTP/1.1 307 x\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "401": b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
}
PLACES = ["away", "unknown", "not TLS"]


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Gives every connection the same bytes, and ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@contextmanager
def failing(how: str) -> Iterator[str]:
    """A URL with a secret in it, of what fails so."""
    tail = f"/hidden/path?token={SECRET}"
    if how == "away":
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        yield f"http://127.0.0.1:{port}{tail}"
    elif how == "unknown":
        yield f"http://nobody.invalid{tail}"
    elif how == "not TLS":
        with answering(b"plain text") as port:
            yield f"https://127.0.0.1:{port}{tail}"
    else:
        with answering(ANSWERS[how]) as port:
            yield f"http://127.0.0.1:{port}{tail}"


def names(text: str, url: str) -> list[str]:
    host = url.split("/")[2].partition(":")[0]
    hidden = [SECRET, "token", "hidden", host, url.split("/")[2], INTERNAL, "aiohttp", "httpx"]
    return [each for each in hidden if each in text]


@pytest.mark.parametrize("how", [*PLACES, *ANSWERS])
async def test_a_webhook_that_fails_names_itself_to_the_operator_alone(
    database: OneDatabase, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "memserver")
    with failing(how) as url:
        model = ScriptedModel([Call("weather", {"inner_thought": "?"}), say("Done.")])
        async with serving(database, model, tool_networks=HERE) as server:
            made = await server.http.post("/v1/tools", json={**WEBHOOK, "url": url})
            assert made.status_code == 201, made.text
            agent = await server.create_agent()
            await server.http.put(f"/v1/agents/{agent}/tools/weather", json={})
            answer = await server.say(agent, "How is the weather?")
    call = answer["messages"][0]["tool_call"]
    result = call["result"]
    assert call["state"] == "failed"
    assert "The webhook" in result
    assert names(result, url) == []
    log = "\n".join(each.getMessage() for each in caplog.records if each.name.endswith("webhooks"))
    assert SECRET not in log
    answered = how in ("a redirect inside", "404", "401")
    assert (url.split("/")[2] in log) is not answered


@pytest.mark.parametrize("how", [*PLACES, *ANSWERS])
async def test_an_mcp_server_that_fails_names_itself_to_the_operator_alone(
    database: OneDatabase, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "memserver")
    with failing(how) as url:
        async with serving(database, ScriptedModel(), tool_networks=HERE) as server:
            answer = await server.http.post("/v1/mcp-servers", json={"name": "wiki", "url": url})
    assert answer.status_code == 422
    assert "The MCP server" in answer.json()["error"]["message"]
    assert names(answer.text, url) == []
    assert SECRET not in caplog.text
