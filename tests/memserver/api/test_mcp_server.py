"""memserver as an MCP server: another agent uses the memories of ours."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from memserver.agent.dependencies import ModelSource
from memserver.api.mcp_server import Memories, always, make_server
from memserver.memory.archival import ArchivalStorage
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel, say
from tests.memserver.api.mcp_calls import call_tool
from tests.support.server import OneDatabase, Server, serving
from tests.support.servers import (
    free_port,
    memserver_command,
    plain_environment,
    settings_for,
    started,
    wait_for,
)


@asynccontextmanager
async def offered(
    server: Server,
    *,
    only: str | None = None,
    tenant: str = "default",
    models: ModelSource | None = None,
) -> AsyncIterator[Client]:
    archival = ArchivalStorage(HashingEmbedder())
    recall = server.services.deps.recall
    memories = Memories(server.services.database, archival, recall, always(tenant), only, models)
    async with Client(make_server(memories)) as client:
        yield client


async def test_another_agent_reads_searches_and_writes_the_memories(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("Hello Ada.")])) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "I am Ada and I like ferns.")
        async with offered(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            agents = await client.call_tool("list_agents", {})
            _, appended = await call_tool(
                client, "working_context_append", agent="sam", section="human", content="Ada"
            )
            _, replaced = await call_tool(
                client,
                "working_context_replace",
                agent=agent,
                section="human",
                old_content="Ada",
                new_content="Ada Lovelace",
            )
            read = await client.call_tool("working_context_read", {"agent": "sam"})
            _, recalled = await call_tool(
                client, "recall_memory_search", agent="sam", query="ferns"
            )
            await call_tool(
                client, "archival_memory_insert", agent="sam", content="Ferns are old.", tags=["x"]
            )
            _, found = await call_tool(client, "archival_memory_search", agent="sam", query="ferns")
        passages = await server.get(f"{agent}/archival")
    assert "agent" not in tools["recall_memory_search"].input_schema["required"]
    assert agents.structured_content == {"result": [{"name": "sam", "id": agent}]}
    assert (appended, replaced) == ("Ada", "Ada Lovelace")
    assert read.structured_content["result"][1]["text"] == "Ada Lovelace"
    assert recalled.startswith("Showing 1 of 1 results")
    assert "exact] user: I am Ada and I like ferns." in recalled
    assert "Ferns are old." in found
    assert [(item["text"], item["tags"]) for item in passages["items"]] == [
        ("Ferns are old.", ["x"])
    ]


async def test_another_agent_reads_what_it_found_to_its_end_in_pages_of_the_agent_s_window(
    database: OneDatabase,
) -> None:
    text = "Today I went to the market. " * 300 + "The zinc compass is in drawer nine."
    async with serving(database, ScriptedModel()) as server:
        small = {"context_window": 1_280, "max_output_tokens": 128}
        agent = await server.create_agent(name="sam", options=small)
        past = {"messages": [{"role": "user", "text": text}]}
        await server.http.post(f"/v1/agents/{agent}/messages/import", json=past)
        models = server.services.deps.models
        async with offered(server, models=models) as client:
            _, passage = await call_tool(
                client, "archival_memory_insert", agent="sam", content=text
            )
            found = [
                (await call_tool(client, tool, agent="sam", query="zinc compass"))[1]
                for tool in ("recall_memory_search", "archival_memory_search")
            ]
            labels = [re.findall(r"memory_read (\w+)", each)[0] for each in found]
            pieces = [await call_tool(client, "memory_read", agent="sam", label=labels[0])]
            while "Next: " in pieces[-1][1]:
                start = int(pieces[-1][1].rpartition("start ")[2].partition(".")[0])
                pieces.append(
                    await call_tool(
                        client, "memory_read", agent="sam", label=labels[0], start=start
                    )
                )
            refused = await call_tool(client, "memory_read", agent="sam", label="m5")
        async with offered(server) as client:  # without a model: its window is not known
            _, whole = await call_tool(
                client, "recall_memory_search", agent="sam", query="zinc compass"
            )
    for page in (*found, *(piece for _, piece in pieces)):
        assert len(page.split()) <= 1_280 // 4
    assert all("The **zinc compass** is in drawer nine." in each for each in found)
    bodies = [piece.partition("] user: ")[2].rpartition("\n(")[0] for _, piece in pieces]
    assert "".join(bodies) == text
    assert refused == (True, "There is no message m5.")
    assert "drawer nine" in whole
    assert passage


async def test_what_can_not_be_done_is_reported_and_no_other_agent_is_reached(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.create_agent(name="sam")
        eve = await server.create_agent(name="eve")
        async with offered(server) as client:
            no_name = await call_tool(client, "working_context_read")
            unknown = await call_tool(client, "working_context_read", agent="nobody")
            section = await call_tool(
                client, "working_context_append", agent="sam", section="no", content="x"
            )
            empty = await call_tool(client, "recall_memory_search", agent="sam", query=" ")
            misspelt = await call_tool(
                client, "archival_memory_search", agent="sam", query="x", tags=["a"]
            )
        async with offered(server, only="sam") as client:
            mine = await call_tool(client, "working_context_read")
            other = await call_tool(client, "working_context_read", agent=eve)
            listed = await client.call_tool("list_agents", {})
        async with offered(server, tenant="another") as client:
            foreign = await call_tool(client, "working_context_read", agent=eve)
    assert no_name == (True, "Name the agent whose memory is meant; list_agents lists them.")
    assert unknown == (True, "There is no agent 'nobody'.")
    assert section[0]
    assert "has no section 'no'; there are: persona, human" in section[1]
    assert empty[0]
    assert misspelt[0]
    assert "tags" in misspelt[1]
    assert not mine[0]
    assert other == (True, "This server is for the agent 'sam' only.")
    assert [each["name"] for each in listed.structured_content["result"]] == ["sam"]
    assert foreign[0]
    assert "There is no agent" in foreign[1]


@pytest.mark.slow
async def test_the_command_speaks_mcp_on_stdio(database: OneDatabase, tmp_path: Path) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.create_agent(name="sam")
    settings = settings_for(
        "http://127.0.0.1:9",
        home=tmp_path,
        database_url=database.owner,
        database_app_url=database.app,
    )
    environment = plain_environment(tmp_path, settings)
    command = StdioServerParameters(
        command=str(memserver_command()), args=["mcp", "--agent", "sam"], env=environment
    )
    async with Client(command) as client:
        failed, text = await call_tool(
            client, "working_context_append", section="human", content="Name: Ada"
        )
    assert (failed, text) == (False, "Name: Ada")


@pytest.mark.slow
async def test_the_command_speaks_mcp_over_http_on_the_loopback(
    database: OneDatabase, tmp_path: Path
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.create_agent(name="sam")
    settings = settings_for(
        "http://127.0.0.1:9",
        home=tmp_path,
        database_url=database.owner,
        database_app_url=database.app,
    )
    port = free_port()

    def listens() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    command = [str(memserver_command()), "mcp", "--http-port", str(port)]
    with started(command, port, tmp_path, settings):
        assert await asyncio.to_thread(wait_for, listens, 60)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            agents = await client.call_tool("list_agents", {})
    assert [each["name"] for each in agents.structured_content["result"]] == ["sam"]
