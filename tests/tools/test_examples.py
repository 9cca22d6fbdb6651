"""The examples: a Python function, a webhook and an MCP server in one turn; approval in the terminal."""

import asyncio
import builtins
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import ThreadingHTTPServer

import pytest
import uvicorn

from examples import approve
from examples.webhook_receiver import Receiver
from memserver.llm.scripted import Call, ScriptedModel, say
from memserver.tools.loading import load_tools
from tests.support import OneDatabase, Server, serving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOTES = {
    "notes": {
        "command": sys.executable,
        "args": ["examples/mcp_notes.py"],
        "env": {"PYTHONPATH": os.pathsep.join(sys.path)},
    }
}


@contextmanager
def receiving() -> Iterator[str]:
    Receiver.secret = SECRET
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


async def test_a_function_a_webhook_and_an_mcp_server_in_one_turn(database: OneDatabase) -> None:
    model = ScriptedModel(
        [
            Call("weather", {"city": "Oslo", "unit": "F"}),
            Call("remember_city", {"city": "Oslo"}),
            Call("order", {"what": "a fern"}),
            Call("notes__read_note", {"title": "ferns"}),
            say("Clear, 57 °F. The fern is ordered; give it shade."),
        ]
    )
    tools = load_tools(["examples.weather_tools"])
    with receiving() as url:
        async with serving(
            database, model, tools, tool_networks="127.0.0.0/8", mcp_servers=NOTES
        ) as server:
            order = {
                "kind": "webhook",
                "name": "order",
                "description": "Order something.",
                "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
                "url": url,
                "secret": SECRET,
            }
            assert (await server.http.post("/v1/tools", json=order)).status_code == 201
            await server.services.mcp.listed(["notes__read_note"])
            agent = await server.create_agent()
            for name in ("weather", "remember_city", "order", "notes__read_note"):
                answer = await server.http.put(f"/v1/agents/{agent}/tools/{name}", json={})
                assert answer.status_code == 200, answer.text
            answer = await server.say(agent, "I live in Oslo. The weather? And order a fern.")
            memory = await server.get(f"{agent}/working-context")
    results = [message["tool_call"]["result"] for message in answer["messages"]]
    assert results == [
        '{"city": "Oslo", "sky": "clear", "degrees": 57.2, "unit": "F"}',
        f"Noted for agent {agent}.",
        '{"ordered": "a fern", "again": false}',
        "Ferns want shade and a wet soil.",
        "",
    ]
    assert memory["sections"][1]["text"] == "Lives in Oslo."


@asynccontextmanager
async def on_a_socket(server: Server) -> AsyncIterator[str]:
    """The test's app on a port, in its own loop, for a client in a thread."""
    app = server.http._transport.app  # type: ignore[attr-defined]
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", ws="none")
    running = uvicorn.Server(config)
    listener = config.bind_socket()
    task = asyncio.create_task(running.serve(sockets=[listener]))
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    running.should_exit = True
    await task
    listener.close()


async def test_a_person_approves_in_the_terminal(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = load_tools(["examples.weather_tools"])
    steps = [Call("weather", {"city": "Oslo"}), say("Clear."), Call("weather", {"city": "Rome"})]
    model = ScriptedModel([*steps, say("Then not.")])
    said = iter(["y", "n", "It costs too much."])
    monkeypatch.setattr(builtins, "input", lambda _: next(said))
    async with serving(database, model, tools) as server:
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/weather", json={"approval": True})
        async with on_a_socket(server) as base:
            for _ in range(2):
                await server.say(agent, "The weather?")
                await asyncio.to_thread(approve.main, base)
    assert capsys.readouterr().out.splitlines() == [
        'weather({"city": "Oslo"})',
        "Clear.",
        'weather({"city": "Rome"})',
        "Then not.",
    ]
    assert model.last_prompt[-1].text == "Failed: A person refused this: It costs too much."
