"""Whatever a tenant, a tool server or a model sends, the event loop continues to answer the others."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.errors import InvalidInput
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from memserver.tools.outbound import mcp_client
from memserver.tools.parameters import check_parameters
from tests.support.agent_files import TIME, closed, with_messages
from tests.support.hostile import (
    ARGUMENTS,
    JSON,
    REFUSED_SCHEMAS,
    TAKEN_SCHEMAS,
    Blocked,
    McpServer,
    bodies,
    doubling,
    holding,
    listed,
    watched_loop,
    wide,
)
from tests.support.http_app import serving as serving_app
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, Server, serving

MOST_BLOCKED = 0.25


@pytest.mark.parametrize("schema", REFUSED_SCHEMAS.values(), ids=REFUSED_SCHEMAS)
def test_a_schema_whose_work_cannot_be_bounded_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        check_parameters(schema)


@pytest.mark.parametrize("schema", TAKEN_SCHEMAS.values(), ids=TAKEN_SCHEMAS)
def test_a_schema_whose_work_can_be_bounded_is_taken(schema: dict[str, Any]) -> None:
    assert check_parameters(schema) == schema


def calls_what_is_named(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
    """Calls the tool `tool_n` with the arguments at the n-th place, once; then says so."""
    text = last_user_text(prompt)
    asked_before = prompt[-1].role != "user"
    if asked_before or not text.startswith("tool_"):
        return say("Done.")
    return Call(text, list(ARGUMENTS.values())[int(text.removeprefix("tool_"))])


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    app = create_scripted_app(calls_what_is_named, context_window=1_000_000)
    with serving_app(app) as url:
        yield f"{url}/v1"


@pytest.fixture
def mcp() -> McpServer:
    return McpServer()


class InThreads(HashingEmbedder):
    """Works beside the loop, as the real ones do."""

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await asyncio.to_thread(asyncio.run, super().count_tokens(texts))

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await asyncio.to_thread(asyncio.run, super().embed(texts))


@asynccontextmanager
async def attacked(
    database: OneDatabase, model_url: str, mcp: McpServer
) -> AsyncIterator[tuple[Server, str]]:
    settings = {
        "llm_base_url": model_url,
        "tool_networks": HERE,
        "turn_timeout": 120,
        "blocked_seconds": 0.15,
    }
    with serving_app(mcp) as mcp_url:
        async with serving(database, ScriptedModel(), **settings) as server:
            agent = await server.create_agent(name="sam")
            assert (await server.say(agent, "hello"))["text"] == "Done."  # everything is loaded
            await register(server, f"{mcp_url}/mcp", "warm")
            yield server, f"{mcp_url}/mcp"


async def register(server: Server, url: str, name: str) -> tuple[int, dict[str, Any]]:
    answer = await server.http.post("/v1/mcp-servers", json={"name": name, "url": url})
    return answer.status_code, answer.json()


async def send_bodies(
    server: Server, bodies: Mapping[str, tuple[str, bytes]], blocked: Blocked
) -> list[tuple[str, int, int]]:
    answers = []
    for name, (path, body) in bodies.items():
        blocked.now = name
        answer = await server.http.post(path, content=body, headers=JSON)
        answers.append((name, answer.status_code, len(answer.content)))
    return answers


async def register_tools(server: Server, blocked: Blocked) -> list[tuple[str, int]]:
    async def one(name: str, number: int, schema: dict[str, Any]) -> tuple[str, int]:
        new = {"kind": "client", "name": f"tool_{number}", "description": "A tool."}
        answer = await server.http.post("/v1/tools", json={**new, "parameters": schema})
        return name, answer.status_code

    blocked.now = "schemas"
    refused = {name: (n + 100, each) for n, (name, each) in enumerate(REFUSED_SCHEMAS.items())}
    taken = {name: (n, each) for n, (name, each) in enumerate(TAKEN_SCHEMAS.items())}
    every = {**refused, **taken}
    return await asyncio.gather(*(one(name, n, each) for name, (n, each) in every.items()))


async def call_tools(server: Server, blocked: Blocked) -> list[str]:
    """Every tool is called by a model with arguments made for it; each turn ends in one way or another."""

    async def one(number: int) -> str:
        blocked.now = f"call of tool_{number}"
        agent = await server.create_agent()
        answer = await server.http.put(f"/v1/agents/{agent}/tools/tool_{number}", json={})
        assert answer.status_code == 200, answer.text
        text = {"text": f"tool_{number}"}
        said = await server.http.post(f"/v1/agents/{agent}/messages", json=text)
        return str(said.json().get("stop_reason") or said.json()["error"]["code"])

    return await asyncio.gather(*(one(number) for number in range(len(ARGUMENTS))))


async def list_mcp_tools(server: Server, url: str, mcp: McpServer, blocked: Blocked) -> None:
    answers: dict[str, tuple[Any, int]] = {
        "good and bad schemas": (listed(doubling(17), wide(900), {"type": "object"}), 201),
        "large schemas": (listed(*[wide(900)] * 8), 201),
        "a list for a schema": (listed([]), 502),
        "numbers for tools": ({"tools": [1] * 100_000}, 422),
        "many tools": (listed(*[{}] * 600), 502),
        "many values": (listed({"enum": [[]] * 100_000}), 422),
        "icons": ({"tools": [{"name": "a", "inputSchema": {}, "icons": [1] * 40_000}]}, 502),
    }
    for number, (name, (result, status)) in enumerate(answers.items()):
        blocked.now, mcp.listed = name, result
        given, said = await register(server, url, f"s{number}")
        assert given == status, (name, said)


async def insert_long_texts(server: Server, blocked: Blocked) -> None:
    for name, text in {"quotes": '."' * 450_000, "lines": "\n" * 900_000 + "x"}.items():
        blocked.now = name
        passages = {"passages": [{"text": text}]}
        agent = await server.create_agent()
        answer = await server.http.post(f"/v1/agents/{agent}/archival", json=passages)
        assert answer.status_code < 500, (name, answer.text)


def hostile_files() -> dict[str, tuple[bytes, int]]:
    """Agent files with what they are answered."""

    def file(name: str, call: Any, count: int) -> bytes:
        values = with_messages(count)
        done = {"id": "a", "name": "b", "state": "done", "result": "", "created_at": TIME}
        for message in values["messages.jsonl"]:
            message["call"] = {**done, "arguments": call}
        for turn in values["turns.jsonl"]:
            turn["error"] = call
        values["agent.json"]["name"] = name
        return closed(values)

    lists = [[0] * 20_000]
    return {
        "arguments of many values": (file("many", {"a": lists * 20}, 20), 201),
        "arguments of long texts": (file("long", {"a": ['"' * 900_000]}, 20), 201),
        "arguments of more values than are stored": (file("more", {"a": lists * 45}, 2), 422),
    }


async def import_files(
    server: Server, files: Mapping[str, tuple[bytes, int]], blocked: Blocked
) -> None:
    for name, (content, status) in files.items():
        blocked.now = name
        answer = await server.http.post("/v1/agents/import", content=content)
        assert answer.status_code == status, (name, answer.text)


async def test_under_all_hostile_input_the_loop_is_never_blocked_for_a_quarter_second(
    database: OneDatabase, other_database: OneDatabase, model_url: str, mcp: McpServer
) -> None:
    attack, files = bodies(), hostile_files()
    for each in (database, other_database):  # what blocks, blocks again; a busy machine seldom does
        async with attacked(each, model_url, mcp) as (server, url), watched_loop() as blocked:
            tools = dict(await register_tools(server, blocked))
            ends = await call_tools(server, blocked)
            await list_mcp_tools(server, url, mcp, blocked)
            answers = await send_bodies(server, attack, blocked)
            await insert_long_texts(server, blocked)
            await import_files(server, files, blocked)
        assert {tools[name] for name in REFUSED_SCHEMAS} == {422}
        assert {tools[name] for name in TAKEN_SCHEMAS} == {201}
        assert set(ends) <= {"message_sent", "requires_action", "model_protocol_violation"}
        for name, status, size in answers:
            assert status in {400, 413, 422}, name
            assert size < 10_000, name
        if blocked.seconds < MOST_BLOCKED:
            break
    assert blocked.seconds < MOST_BLOCKED, blocked.during


async def test_a_server_that_never_lists_its_tools_is_given_up(
    database: OneDatabase, model_url: str, mcp: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_client, "LIST_SECONDS", 0.2)
    async with attacked(database, model_url, mcp) as (server, url):
        mcp.listed = None
        status, said = await register(server, url, "silent")
    assert (status, said["error"]["code"]) == (502, "mcp_server_error")
    assert "did not list its tools within" in said["error"]["message"]


async def test_what_is_no_valid_answer_of_an_mcp_server_is_an_error_with_a_code(
    database: OneDatabase, model_url: str, mcp: McpServer
) -> None:
    async with attacked(database, model_url, mcp) as (server, url):
        mcp.listed = listed([])
        assert (await register(server, url, "bad"))[1]["error"]["code"] == "mcp_server_error"
        mcp.initialized = {"protocolVersion": 7}
        status, said = await register(server, url, "worse")
    assert (status, said["error"]["code"]) == (422, "invalid_input")
    assert len(said["error"]["message"]) < 500


async def test_a_bad_tool_of_a_server_is_left_out_with_the_reason_and_the_others_are_taken(
    database: OneDatabase, model_url: str, mcp: McpServer
) -> None:
    email = {"type": "string", "pattern": r"^(?!\.)[a-z.]+@[a-z.]+$"}
    mcp.listed = listed(doubling(17), holding(email))
    async with attacked(database, model_url, mcp) as (server, url):
        status, said = await register(server, url, "mixed")
        tool = (await server.http.get("/v1/tools/mixed__t1")).json()
    assert (status, said["tools"]) == (201, ["mixed__t1"])
    assert "more than 1000 schemas" in said["refused"]["t0"]
    assert tool["parameters"] == holding({"type": "string"})
