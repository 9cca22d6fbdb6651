"""Agents that have one of everything, and move."""

from typing import Any

import httpx2

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import Server

TABLES = ("agents", "agent_state", "collections", "sections", "section_edits", "messages", "turns",
          "tool_calls", "summaries", "passages", "agent_tools")  # fmt: skip


async def export(server: Server, agent: str, **query: Any) -> bytes:
    answer = await server.http.get(f"/v1/agents/{agent}/export", params=query)
    assert answer.status_code == 200, answer.text
    return answer.content


async def import_file(server: Server, content: bytes, **query: Any) -> httpx2.Response:
    return await server.http.post("/v1/agents/import", content=content, params=query)


def rows(server: Server) -> dict[str, int]:
    return {table: server.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


async def lived(server: Server) -> str:
    """An agent that has one of everything."""
    agent = await server.create_agent(
        name="sam", options={"timezone": "Europe/Berlin", "max_steps": 7}
    )
    url = f"/v1/agents/{agent}"
    for text in ("Name: Ada", "Name: Ada. Likes tea."):
        await server.http.patch(f"{url}/working-context/human", json={"text": text})
    shared = await server.http.post("/v1/collections", json={"name": "rules"})
    await server.http.put(f"{url}/collections/{shared.json()['id']}")
    passages = [
        {
            "text": f"passage {n}",
            "tags": ["a", f"t{n}"],
            "metadata": {"n": n, "deep": {"x": [1.5, None]}},
        }
        for n in range(3)
    ]
    await server.http.post(f"{url}/archival", json={"passages": passages})
    tool = {"kind": "client", "name": "look_up", "description": "Looks up.",
            "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}}  # fmt: skip
    assert (await server.http.post("/v1/tools", json=tool)).status_code == 201
    put = await server.http.put(f"{url}/tools/look_up", json={"max_calls": 2})
    assert put.status_code == 200, put.text
    await server.say(agent, "Good morning, 👩‍🔬!", **{"Idempotency-Key": "first"})
    past = [{"role": "user", "text": "long ago", "created_at": "2020-01-01T00:00:00Z"}]
    answer = await server.http.post(f"{url}/messages/import", json={"messages": past})
    assert answer.status_code == 200, answer.text
    return agent


def talkative() -> ScriptedModel:
    calls = iter(
        [
            Call("archival_memory_insert", {"content": "noted", "request_heartbeat": True}),
            say("hello"),
        ]
    )
    return ScriptedModel(lambda _prompt, _tools: next(calls, say("again")))
