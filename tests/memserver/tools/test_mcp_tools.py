"""MCP servers as tools: those of the settings, on stdio, and those of the API, over HTTP."""

import asyncio
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from starlette.responses import Response

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.http_app import Current
from tests.support.mcp_demo import HERE, over_http
from tests.support.server import OneDatabase, Server, serving

STDIO = {
    "demo": {
        "command": sys.executable,
        "args": ["-m", "tests.support.mcp_demo"],
        "env": {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    }
}
NOBODY = {"away": {"command": "/nowhere/at/all"}}


async def agent_with(server: Server, *tools: str) -> str:
    agent = await server.create_agent()
    for name in tools:
        answer = await server.http.put(f"/v1/agents/{agent}/tools/{name}", json={})
        assert answer.status_code == 200, answer.text
    return agent


def results(answer: dict[str, Any]) -> list[tuple[str, str]]:
    calls = [message["tool_call"] for message in answer["messages"]]
    return [(call["state"], call["result"]) for call in calls if call["name"] != "send_message"]


async def test_a_server_of_the_settings_is_listed_attached_called_and_started_again_when_it_dies(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        [
            Call("demo__add", {"a": 2}),
            Call("demo__break_down"),
            Call("demo__look"),
            Call("demo__die"),
            Call("demo__add", {"a": 3, "b": 4}),
            say("Done."),
        ]
    )
    names = ["demo__add", "demo__break_down", "demo__look", "demo__die"]
    async with serving(database, model, mcp_servers={**STDIO, **NOBODY}) as server:
        await server.services.mcp.wait_until_listed(["demo__add"])
        tools = (await server.http.get("/v1/tools")).json()["items"]
        agent = await agent_with(server, *names)
        answer = await server.say(agent, "Go!")
        mine = await server.http.delete("/v1/tools/demo__add")
    add = next(tool for tool in tools if tool["name"] == "demo__add")
    assert (add["kind"], add["description"]) == ("mcp", "Add two numbers.")
    assert list(add["parameters"]["properties"]) == ["a", "b"]
    assert "demo__odd_name_with_spaces" in {tool["name"] for tool in tools}
    assert "demo__ours" not in {tool["name"] for tool in tools}
    assert mine.status_code == 409
    (one, broken, picture, died, two) = results(answer)
    assert one == ("done", "3")
    assert broken[0] == "failed"
    assert "break_down" in broken[1]
    assert picture == ("done", "[picture]")
    assert died[0] == "failed"
    assert "whether the call took effect is not known" in died[1]
    assert two == ("done", "7")


async def test_a_command_that_is_not_there_is_named_in_the_log(
    database: OneDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    warned: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hear(record: logging.LogRecord) -> bool:
        if record.name == "memserver.tools.mcp_tools" and not warned.done():
            warned.set_result(record.getMessage())
        return True

    caplog.handler.addFilter(hear)
    async with serving(database, ScriptedModel(), mcp_servers=NOBODY):
        message = await asyncio.wait_for(warned, 30)
    start = "MCP server away (command /nowhere/at/all): The MCP server can't be reached: "
    assert message.startswith(start)
    assert re.search(r"Trying again in [\d.]+ s\.$", message)


async def test_a_server_of_the_settings_that_is_away_takes_nothing_but_its_tools(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("Hi."), say("Hi.")]), mcp_servers=STDIO) as one:
        await one.services.mcp.wait_until_listed(["demo__add"])
        agent = await agent_with(one, "demo__add")
        assert (await one.say(agent, "Hi!"))["text"] == "Hi."
    model = ScriptedModel([say("Hi.")])
    async with serving(database, model) as two:
        tools = await two.get(f"{agent}/tools")
        assert (await two.say(agent, "Hi!"))["text"] == "Hi."
    away = next(tool for tool in tools["items"] if tool["name"] == "demo__add")
    assert (away["available"], away["kind"]) == (False, None)
    assert "demo__add" not in {spec.name for spec in model.seen[0].tools}


async def test_a_server_is_registered_over_the_api_and_its_tools_are_called(
    database: OneDatabase,
) -> None:
    got: list[dict[str, str]] = []
    call = Call("wiki__add", {"a": 2, "b": 2})
    model = ScriptedModel([call, say("4"), call, say("Still 4")])
    with over_http(headers=got) as port:
        new = {
            "name": "wiki",
            "url": f"http://127.0.0.1:{port}/mcp",
            "headers": {"Authorization": "Bearer s3cret"},
        }
        async with serving(database, model, tool_networks=HERE) as server:
            made = await server.http.post("/v1/mcp-servers", json=new)
            assert made.status_code == 201, made.text
            twice = await server.http.post("/v1/mcp-servers", json=new)
            agent = await agent_with(server, "wiki__add")
            assert results(await server.say(agent, "2 + 2?")) == [("done", "4")]
            path = f"/v1/mcp-servers/{made.json()['id']}"
            again = await server.http.post(f"{path}/refresh")
            assert results(await server.say(agent, "Sure?")) == [("done", "4")]
            listed = (await server.http.get("/v1/mcp-servers")).json()
            assert (await server.http.delete(path)).status_code == 204
            gone = await server.http.get(path)
            tools = await server.get(f"{agent}/tools")
    assert {"wiki__add", "wiki__die"} < set(made.json()["tools"])
    assert "inner_thought" in made.json()["refused"]["ours"]
    assert twice.status_code == 409
    assert again.json()["tools"] == made.json()["tools"]
    assert [item["name"] for item in listed["items"]] == ["wiki"]
    assert "s3cret" not in made.text + again.text
    assert all(headers["authorization"] == "Bearer s3cret" for headers in got)
    assert all(headers["host"] == f"127.0.0.1:{port}" for headers in got)
    assert gone.status_code == 404
    assert "wiki__add" not in {tool["name"] for tool in tools["items"]}


LONG = "get_customer_invoice_line_items_by_billing_account_and_period"
SPELLINGS = [
    *("files.read", "files-read", "files_read", "files read", "ns/tool", "with space", LONG),
    *(f"{LONG}.v2", f"{LONG}_v2", "ä", "ö"),
]


def named_alike(names: Sequence[str]) -> MCPServer[Any]:
    """A server whose tools say which they are."""
    server: MCPServer[Any] = MCPServer("alike", log_level="CRITICAL")
    for name in names:
        server.add_tool(_saying(name), name=name, description=name)
    return server


def _saying(text: str) -> Callable[[], str]:
    def said() -> str:
        return text

    return said


def obey(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    """Calls the tool that the user names."""
    return say("Done.") if prompt[-1].role == "tool" else Call(last_user_text(prompt))


@pytest.mark.parametrize("order", [1, -1])
async def test_tools_whose_names_are_alike_or_long_are_each_called_by_a_name_of_their_own(
    database: OneDatabase, order: int
) -> None:
    with over_http(served=named_alike(SPELLINGS[::order])) as port:
        new = {"name": "billing-service-prod", "url": f"http://127.0.0.1:{port}/mcp"}
        async with serving(database, ScriptedModel(obey), tool_networks=HERE) as server:
            made = (await server.http.post("/v1/mcp-servers", json=new)).json()
            listed = (await server.http.get("/v1/tools", params={"limit": 100})).json()["items"]
            names = {each["description"]: each["name"] for each in listed if each["kind"] == "mcp"}
            agent = await agent_with(server, *names.values())
            for remote, name in names.items():
                assert results(await server.say(agent, name)) == [("done", remote)]
    assert (set(names), made["refused"]) == (set(SPELLINGS), {})
    assert all(len(name) <= 64 for name in names.values())
    shown = {remote: name.removeprefix("billing-service-prod__") for remote, name in names.items()}
    assert shown["files_read"] == "files_read"
    assert shown["files-read"] == "files-read"
    assert shown["files.read"] == f"files_read_{sha256(b'files.read').hexdigest()[:6]}"
    assert shown["with space"] == "with_space"


async def test_a_server_that_was_started_again_is_connected_to_again(
    database: OneDatabase,
) -> None:
    call = Call("wiki__add", {"a": 2, "b": 2})
    model = ScriptedModel([call, say("4"), call, say("Away."), call, say("Back.")])
    async with serving(database, model, tool_networks=HERE) as server:
        with over_http() as port:
            new = {"name": "wiki", "url": f"http://127.0.0.1:{port}/mcp"}
            made = await server.http.post("/v1/mcp-servers", json=new)
            assert made.status_code == 201, made.text
            agent = await agent_with(server, "wiki__add")
            assert results(await server.say(agent, "2 + 2?")) == [("done", "4")]
        [(state, reason)] = results(await server.say(agent, "Are you there?"))
        with over_http(port):
            assert results(await server.say(agent, "2 + 2?")) == [("done", "4")]
    assert state == "failed"
    assert "can't be reached" in reason


async def test_a_server_at_a_private_address_or_none_is_refused(database: OneDatabase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with serving(database, ScriptedModel()) as server:
        literal = {"name": "inside", "url": "http://127.0.0.1/mcp"}
        refused = await server.http.post("/v1/mcp-servers", json=literal)
        command = {"name": "inside", "command": "rm", "args": ["-rf", "/"]}
        no_command = await server.http.post("/v1/mcp-servers", json=command)
    async with serving(database, ScriptedModel(), tool_networks=HERE) as server:
        nobody = {"name": "inside", "url": f"http://127.0.0.1:{port}/mcp"}
        away = await server.http.post("/v1/mcp-servers", json=nobody)
        listed = (await server.http.get("/v1/mcp-servers")).json()
    assert refused.status_code == no_command.status_code == away.status_code == 422
    assert "not an address of the public internet" in refused.json()["error"]["message"]
    assert "can't be reached" in away.json()["error"]["message"]
    assert listed["items"] == []


@pytest.mark.parametrize(
    "answer",
    [
        Response(b'"' + b"x" * 5_000_000 + b'"', media_type="application/json"),
        Response(b"{", media_type="application/json", headers={"Content-Encoding": "gzip"}),
        Response(b"<html>", media_type="text/html"),
        Response(status_code=500),
        Response(status_code=307, headers={"Location": "http://169.254.169.254/mcp"}),
        Response(status_code=307, headers={"Location": "http://a..b/mcp"}),
    ],
)
async def test_what_speaks_no_mcp_is_refused(
    database: OneDatabase, current: Current, served: str, answer: Response
) -> None:
    current.app = answer
    async with serving(database, ScriptedModel(), tool_networks=HERE) as server:
        new = {"name": "odd", "url": f"{served}/mcp"}
        made = await server.http.post("/v1/mcp-servers", json=new)
    assert made.status_code == 422, made.text
    assert "The MCP server" in made.json()["error"]["message"]


async def test_a_name_that_leads_inside_is_refused_when_it_is_connected_to(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = asyncio.BaseEventLoop.getaddrinfo

    async def getaddrinfo(self: Any, host: Any, port: Any, **options: Any) -> Any:
        there = "127.0.0.1" if host == "inside.example" else host
        return await real(self, there, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    got: list[dict[str, str]] = []
    with over_http(headers=got) as port:
        async with serving(database, ScriptedModel()) as server:
            new = {"name": "inside", "url": f"http://inside.example:{port}/mcp"}
            answer = await server.http.post("/v1/mcp-servers", json=new)
    assert answer.status_code == 422
    assert "not one of the public internet" in answer.json()["error"]["message"]
    assert got == []
