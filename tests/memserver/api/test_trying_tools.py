"""A tool is called once, to try it: as an agent would call it."""

import asyncio
import os
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memserver.agent import tool_trial
from memserver.testing.scripted import ScriptedModel
from memserver.tools.function import MARK, AgentContext, tool
from tests.support.http_app import Current
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, Server, serving


@dataclass
class Place:
    city: str
    floor: int = 0


@tool
async def visit(place: Place, context: AgentContext) -> str:
    """Visit a place, and note it."""
    return await context.memory.append("human", f"{place!r} {context.turn}")


@tool
def die() -> str:
    """End the process."""
    os._exit(3)


TOOLS = [getattr(each, MARK).tool for each in (visit, die)]


async def tried(server: Server, name: str, arguments: Any = None, **query: str) -> dict[str, Any]:
    body = {} if arguments is None else {"arguments": arguments}
    answer = await server.http.post(f"/v1/tools/{name}/try", json=body, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found.pop("seconds") >= 0
    return found


async def test_a_python_function_is_tried_in_a_process_of_its_own(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), TOOLS) as server:
        agent = await server.create_agent()
        arguments = {"place": '{"city": "Oslo", "floor": "2"}', "inner_thought": "Go."}
        visited, ended = await asyncio.gather(
            tried(server, "visit", arguments, agent=agent), tried(server, "die")
        )
        wrong = await tried(server, "visit", {"where": "Oslo"})
        section = (await server.get(f"{agent}/working-context"))["sections"][-1]
        history = (await server.get(f"{agent}/messages"))["items"]
    noted = "Place(city='Oslo', floor=2) 0"
    assert visited == {
        "state": "done",
        "result": noted,
        "pictures": 0,
        "arguments": {"place": {"city": "Oslo", "floor": 2}, "inner_thought": "Go."},
    }
    assert (section["text"], history) == (noted, [])
    assert (ended["state"], ended["result"]) == ("failed", "Its process ended while it ran.")
    assert (wrong["state"], wrong["arguments"]) == ("refused", {"where": "Oslo"})
    assert "visit needs the argument place" in wrong["result"]


async def test_a_webhook_and_a_tool_of_an_mcp_server_are_tried(
    database: OneDatabase, current: Current, served: str, mcp_url: str
) -> None:
    bodies: list[bytes] = []

    async def weather_hook(request: Request) -> Response:
        bodies.append(await request.body())
        return JSONResponse({"sky": "clear", "more": "x" * 200})

    current.app = Starlette(routes=[Route("/v1/weather", weather_hook, methods=["POST"])])
    async with serving(
        database, ScriptedModel(), tool_networks=HERE, tool_result_characters=100
    ) as server:
        agent = await server.create_agent(name="sam")
        made = {
            "kind": "webhook",
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            "url": f"{served}/weather",
        }
        (await server.http.post("/v1/tools", json=made)).raise_for_status()
        wiki = {"name": "wiki", "url": mcp_url}
        (await server.http.post("/v1/mcp-servers", json=wiki)).raise_for_status()
        weather = await tried(server, "weather", {"city": "Oslo"}, agent="sam")
        added = await tried(server, "wiki__add", {"a": "2"})
        failed = await tried(server, "wiki__break_down")
    assert weather["result"].startswith('{"sky":"clear",')
    assert weather["result"].endswith("ask for less]")
    [body] = bodies
    assert f'"agent_id": "{agent}"'.encode() in body
    assert (added["state"], added["result"], added["arguments"]) == ("done", "3", {"a": 2})
    assert (failed["state"], "break_down" in failed["result"]) == ("failed", True)


async def test_only_so_many_are_tried_at_a_time(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_taken = threading.BoundedSemaphore(1)
    assert all_taken.acquire()
    monkeypatch.setattr(tool_trial, "_running", all_taken)
    async with serving(database, ScriptedModel(), TOOLS) as server:
        answer = await tried(server, "die")
    assert answer["state"] == "failed"
    assert answer["result"] == "8 tools are being tried already. Try later."


async def test_what_can_not_be_tried_is_an_error(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        ours = {"kind": "client", "name": "open_file", "description": "Open it."}
        (await server.http.post("/v1/tools", json=ours)).raise_for_status()
        answers = {
            (name, query): await server.http.post(f"/v1/tools/{name}/try{query}", json={})
            for name, query in (
                ("open_file", ""),
                ("send_message", ""),
                ("nothing", ""),
                ("open_file", "?agent=nobody"),
            )
        }
    assert [
        (answer.status_code, answer.json()["error"]["message"]) for answer in answers.values()
    ] == [
        (422, "open_file can't be tried: the caller runs it."),
        (422, "send_message can't be tried: it acts on an agent in a turn."),
        (404, "There is no tool 'nothing'."),
        (404, "There is no agent 'nobody'."),
    ]
