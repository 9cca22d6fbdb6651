"""Agents of Letta's agent files, in the two forms that there are."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from memserver.agent_files.letta import LettaFile
from memserver.agent_files.letta_messages import (
    LOST_RESULT,
    NO_ARGUMENTS,
    NO_MESSAGE,
    NO_TIME,
    OWN_EVENT,
)
from memserver.errors import AgentFileCorrupt
from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving

AT = "2025-10-31T22:56:56.459100+00:00"


def message(number: int, role: str, text: str | None, **more: Any) -> dict[str, Any]:
    content = [] if text is None else [{"type": "text", "text": text, "signature": None}]
    return {
        "type": "message",
        "id": f"message-{number}",
        "role": role,
        "content": content,
        "tool_calls": None,
        "tool_call_id": None,
        "tool_returns": [],
        "created_at": AT,
        **more,
    }


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def block(number: int, label: str, value: str, **more: Any) -> dict[str, Any]:
    return {"id": f"block-{number}", "label": label, "value": value, "limit": 20000, **more}


def tool(number: int, name: str, kind: str) -> dict[str, Any]:
    return {"id": f"tool-{number}", "name": name, "tool_type": kind, "source_code": "def f(): ..."}


def letta_file() -> dict[str, Any]:
    user = json.dumps({"type": "user_message", "message": "I am Ada.", "time": "now"})
    login = json.dumps({"type": "login", "last_login": "Never", "time": "now"})
    status = json.dumps({"status": "OK", "message": "None"})
    messages = [
        message(0, "system", "You are Sam, with the blocks and all."),
        message(1, "user", login),
        message(2, "user", user),
        message(3, "assistant", "I should note that.", tool_calls=[call("c1", "memory_insert", label="human")]),
        message(4, "tool", status, tool_call_id="c1"),
        message(5, "assistant", None, tool_calls=[call("c2", "send_message", message="Hello Ada!")]),
        message(6, "tool", status, tool_call_id="c2"),
        message(7, "user", "What is two and two?"),
        message(8, "assistant", None, tool_calls=[call("c3", "add", a=2, b=2), call("c4", "add", a=1, b=1)]),
        message(9, "tool", "no", tool_call_id="c3",
                tool_returns=[{"tool_call_id": "c3", "status": "error", "func_response": "no"}]),
        message(10, "assistant", "Four."),
    ]  # fmt: skip
    agent = {
        "id": "agent-0",
        "name": "Sam",
        "system": "You are Sam.",
        "agent_type": "letta_v1_agent",
        "description": "A test",
        "tags": ["x"],
        "timezone": "Europe/Berlin",
        "block_ids": ["block-1", "block-0"],
        "tool_ids": ["tool-0", "tool-1", "tool-2"],
        "tool_rules": [
            {"type": "exit_loop", "tool_name": "add"},
            {"type": "constrain_child_tools", "tool_name": "add", "children": []},
        ],
        "llm_config": {"model": "gpt-4o-mini", "handle": "openai/gpt-4o-mini"},
        "embedding_config": {"embedding_model": "text-embedding-3-small"},
        "tool_exec_environment_variables": {"TOKEN": None},
        "in_context_message_ids": [
            "message-0",
            "message-7",
            "message-8",
            "message-9",
            "message-10",
        ],
        "messages": messages,
    }
    return {
        "agents": [agent, {"name": "Other"}],
        "blocks": [
            block(0, "human", "Name: Ada", description="About the human", read_only=True),
            block(1, "notes/today", "y" * 30_000),
            block(2, "unused", "z"),
        ],
        "tools": [
            tool(0, "add", "custom"),
            tool(1, "conversation_search", "letta_core"),
            tool(2, "wiki", "external_mcp"),
        ],
        "groups": [],
        "files": [{"id": "file-0", "file_name": "a.pdf"}],
        "sources": [],
        "mcp_servers": [{"id": "mcp-0", "server_name": "wiki"}],
        "metadata": {"revision_id": "f6cd5a1e519d"},
    }


async def import_file(server: Server, value: object) -> dict[str, Any]:
    answer = await server.http.post("/v1/agents/import", content=json.dumps(value).encode())
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_letta_agent_comes_with_its_memory_and_what_it_said(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(lambda _prompt, _tools: say("Yes."))) as server:
        made = await import_file(server, letta_file())
        agent = made["agent"]["id"]
        assert made["agent"]["name"] == "Sam"
        assert made["agent"]["system_prompt"] == "You are Sam."
        assert made["agent"]["options"]["timezone"] == "Europe/Berlin"
        assert made["agent"]["metadata"]["letta"]["tags"] == ["x"]
        sections = (await server.get(f"{agent}/working-context"))["sections"]
        assert [(each["name"], each["text"][:9], each["read_only"]) for each in sections] == [
            ("notes_today", "y" * 9, False),
            ("human", "Name: Ada", True),
        ]
        assert len(sections[0]["text"]) == 30_000
        history = (await server.get(f"{agent}/messages", order="asc"))["items"]
        assert [(each["role"], each["text"]) for each in history] == [
            ("user", "I am Ada."),
            ("assistant", ""),
            ("assistant", "Hello Ada!"),
            ("user", "What is two and two?"),
            ("assistant", ""),
            ("assistant", ""),
            ("assistant", "Four."),
        ]
        calls = [each["tool_call"] for each in history if each["tool_call"]]
        assert [(each["name"], each["state"]) for each in calls] == [
            ("memory_insert", "done"),
            ("add", "failed"),
            ("add", "interrupted"),
        ]
        assert history[1]["thought"] == "I should note that."
        queue = (await server.get(f"{agent}/context"))["queue"]
        assert queue[0]["text"] == "What is two and two?"
        assert all(each["tokens"] > 0 for each in queue)
        assert (await server.say(agent, "Sure?"))["messages"][-1]["text"] == "Yes."


async def test_what_a_letta_file_has_and_memserver_has_not_is_reported(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        made = await import_file(server, letta_file())
    reported = {(each["kind"], each["name"]) for each in made["not_carried"]}
    assert reported >= {
        ("agent", "Other"),
        ("block", "notes/today"),
        ("tool", "add"),
        ("tool", "conversation_search"),
        ("tool", "wiki"),
        ("tool_rule", "add"),
        ("model", "openai/gpt-4o-mini"),
        ("embedding_model", "text-embedding-3-small"),
        ("mcp_server", "wiki"),
        ("file", "a.pdf"),
        ("secret", "TOKEN"),
        ("system_prompt", ""),
    }


async def test_the_older_form_and_a_file_that_is_a_string_are_read_too(
    database: OneDatabase,
) -> None:
    old = {
        "name": "old",
        "agent_type": "memgpt_agent",
        "system": "You are Letta, the latest version of Limnal Corporation's digital companion.",
        "core_memory": [{"label": "persona", "value": "I am Sam.", "limit": 5000, "description": None}],
        "in_context_message_indices": [0, 1],
        "messages": [
            message(0, "system", "prompt"),
            message(1, "user", "hi", created_at="2025-04-01T03:47:27"),
        ],
        "tools": [],
        "tool_rules": [],
        "tool_exec_environment_variables": [],
    }  # fmt: skip
    async with serving(database, ScriptedModel()) as server:
        made = await import_file(server, old)
        assert made["agent"]["system_prompt"] is None
        [section] = (await server.get(f"{made['agent']['id']}/working-context"))["sections"]
        assert (section["name"], section["text"], section["limit"]) == (
            "persona",
            "I am Sam.",
            5000,
        )
        assert made["messages"] == 1
        again = await import_file(server, json.dumps({**old, "name": "once more"}))
        assert again["agent"]["name"] == "once more"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":"\\ud800 \\u0000"}',
        '{"a":NaN}',
        '{"a":' + "[" * 5000 + "]" * 5000 + "}",
        json.dumps({"a": [[0] * 20_000] * 37}, separators=(",", ":")),
    ],
    ids=["no text", "no number", "deep", "many"],
)
async def test_arguments_of_a_call_that_can_not_be_stored_are_cleaned_or_left_out(
    database: OneDatabase, arguments: str
) -> None:
    value = letta_file()
    for each in value["agents"][0]["messages"]:
        for made in each["tool_calls"] or []:
            if made["id"] == "c3":
                made["function"]["arguments"] = arguments
    async with serving(database, ScriptedModel()) as server:
        await import_file(server, value)


async def test_json_that_is_no_letta_file_is_an_error_with_a_code(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        codes = []
        for content in (b"{}", b'{"agents": []}', b'{"agents": [', b'"text"', b'{"agents": 5}'):
            answer = await server.http.post("/v1/agents/import", content=content)
            assert answer.status_code in (415, 422), answer.text
            codes.append(answer.json()["error"]["code"])
        assert server.rows("SELECT count(*) FROM agents") == [(0,)]
    assert codes == [
        "agent_file_unsupported",
        "agent_file_corrupt",
        "agent_file_corrupt",
        "agent_file_unsupported",
        "agent_file_corrupt",
    ]


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The way to everything within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, *path, key)


@pytest.mark.parametrize("odd", [None, 5, "x", True, [], {}, [5], [[]], {"x": 1}, 1e300], ids=repr)
def test_whatever_stands_anywhere_in_a_letta_file_is_read_or_refused(odd: Any) -> None:
    read = 0
    for path in places(letta_file()):
        changed: Any = letta_file()
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = odd
        with suppress(AgentFileCorrupt):
            assert LettaFile(changed).agent.name
            read += 1
    assert read > 100


async def test_nothing_of_a_letta_file_is_dropped_without_a_note(database: OneDatabase) -> None:
    value = letta_file()
    [sam, *_] = value["agents"]
    sam["block_ids"] = ["block-7"]
    sam["identities"] = [{"name": "Ada"}]
    sam["messages"] = [
        message(0, "system", "prompt"),
        message(1, "user", "When?", created_at="yesterday"),
        message(2, "wizard", "Abracadabra."),
        {**message(3, "user", "No role."), "role": None},
        message(4, "user", json.dumps({"type": "heartbeat", "time": "now"})),
        message(5, "assistant", None, tool_calls=[call("c1", "add", a=1)]),
        message(6, "tool", "3", tool_call_id="c0"),
        "what",
    ]
    sam["messages"][5]["tool_calls"][0]["function"]["arguments"] = "{oops"
    value["passages"] = [{"id": "p1", "text": " "}, {"id": "p2", "text": "x", "created_at": "soon"}]
    async with serving(database, ScriptedModel()) as server:
        made = await import_file(server, value)
        history = (await server.get(f"{made['agent']['id']}/messages", order="asc"))["items"]
    assert [(each["role"], each["text"]) for each in history] == [
        ("user", "When?"),
        ("system", "[wizard] Abracadabra."),
        ("system", "[no role] No role."),
        ("assistant", ""),
    ]
    reported = {(each["kind"], each["name"]) for each in made["not_carried"]}
    assert reported >= {
        ("block", "block-7"),
        ("block", "human"),
        ("block", ""),
        ("identities", ""),
        ("passage", "p1"),
        ("passage", "p2"),
    }
    said = {each["reason"] for each in made["not_carried"] if each["kind"] == "message"}
    assert said == {
        f"{what}: 1."
        for what in (
            NO_TIME,
            "Of the unknown role 'wizard', kept as the system's",
            "Of the unknown role 'no role', kept as the system's",
            OWN_EVENT,
            NO_ARGUMENTS,
            LOST_RESULT,
            NO_MESSAGE,
        )
    }


async def test_a_letta_file_in_utf_16_and_one_in_a_form_are_read(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        for name, sent in (
            ("utf-16", {"content": json.dumps(letta_file()).encode("utf-16")}),
            ("utf-16-le", {"content": json.dumps(letta_file()).encode("utf-16-le")}),
            ("form", {"files": {"file": ("x.af", json.dumps(letta_file()))}}),
        ):
            answer = await server.http.post("/v1/agents/import", params={"name": name}, **sent)
            assert (answer.status_code, answer.json()["messages"]) == (201, 7), answer.text
        two = await server.http.post(
            "/v1/agents/import", files={"file": b"{}"}, data={"name": "sam"}
        )
        assert (two.status_code, two.json()["error"]["code"]) == (422, "invalid_input")
