"""Agents that want to know are notified of documents in what they search."""

from typing import Any

from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving

WANTS: dict[str, Any] = {"options": {"upload_events": True}}


async def said(server: Server, agent: str) -> list[str]:
    await server.http.get(f"/v1/agents/{agent}/turns/1/events")  # to the turn's end
    items = (await server.get(f"{agent}/messages", order="asc"))["items"]
    return [each["text"] for each in items]


async def test_a_stored_document_is_an_event_for_the_agents_that_search_it_and_want_it(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(lambda _prompt, _tools: say("I have it."))
    async with serving(database, model) as server:
        own = await server.create_agent(name="own", **WANTS)
        attached = await server.create_agent(name="attached", **WANTS)
        quiet = await server.create_agent(name="quiet")
        other = await server.create_agent(name="other", **WANTS)
        shared = (await server.http.post("/v1/collections", json={"name": "rules"})).json()["id"]
        for agent in (attached, quiet):
            await server.http.put(f"/v1/agents/{agent}/collections/{shared}")
        for place in (f"agents/{own}", f"collections/{shared}"):
            file = {"file": ("rules.txt", b"Otters hold hands.")}
            sent = await server.http.post(f"/v1/{place}/documents", files=file)
            assert sent.status_code == 202, sent.text
        await server.run_jobs()
        for agent in (own, attached):
            assert await said(server, agent) == ["[event] upload: rules.txt", "I have it."]
        for agent in (quiet, other):
            assert (await server.get(f"{agent}/messages"))["items"] == []
