"""A Python function, a webhook and an MCP server in one turn, as examples/ has them."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from examples.webhook_receiver import Receiver
from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.tools.loading import load_tools
from tests.support.server import OneDatabase, serving

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
            await server.services.mcp.wait_until_listed(["notes__read_note"])
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
