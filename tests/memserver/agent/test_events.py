"""Events beside messages: a turn whose answer is allowed, and not required."""

import asyncio
from typing import Any

import pytest

from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving


async def happen(server: Server, agent: str, **event: Any) -> dict[str, Any]:
    answer = await server.http.post(f"/v1/agents/{agent}/events", json=event)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


async def test_an_event_may_be_answered_acted_on_or_left_at_that(database: OneDatabase) -> None:
    note = Call("working_context_append", {"section": "human", "content": "Sent rules.pdf"})
    model = ScriptedModel([say("Welcome back!"), note, Call("nothing_to_do"), say("Hello.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        login = await happen(server, agent, type="login")
        upload = await happen(server, agent, type="upload", text="rules.pdf")
        custom = await happen(server, agent, type="custom", text="It began to rain.")
        await server.say(agent, "Hi!")
        history = await server.get(f"{agent}/messages", order="asc")
        found = await server.get(f"{agent}/recall/search", query="rain", mode="exact")
    assert (login["text"], login["stop_reason"]) == ("Welcome back!", "message_sent")
    assert (upload["text"], upload["stop_reason"], upload["steps"]) == ("", "no_heartbeat", 1)
    assert (custom["text"], custom["stop_reason"]) == ("", "no_heartbeat")
    shown = [each.text for each in model.last_prompt if each.text.startswith("[event]")]
    assert shown == ["[event] login", "[event] upload: rules.pdf", "[event] It began to rain."]
    assert all(each.role == "user" for each in model.last_prompt if each.text in shown)
    offered = [{tool.name for tool in seen.tools} for seen in model.seen]
    assert ["nothing_to_do" in names for names in offered] == [True, True, True, False]
    system = [each["text"] for each in history["items"] if each["role"] == "system"]
    assert system == shown
    assert found["items"] == []


async def test_an_event_waits_its_turn_and_a_repeated_one_is_stored_once(
    database: OneDatabase,
) -> None:
    held = Held(say("First."), asyncio.Event())
    model = ScriptedModel([held, say("Second.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        asking = asyncio.create_task(server.say(agent, "Hello."))
        await held.reached.wait()
        url, key = f"/v1/agents/{agent}/events", {"Idempotency-Key": "k"}
        event = asyncio.create_task(server.http.post(url, json={"type": "login"}, headers=key))
        held.release.set()
        assert (await asking)["text"] == "First."
        first = await event
        again = await server.http.post(url, json={"type": "login"}, headers=key)
        other = await server.http.post(url, json={"type": "upload"}, headers=key)
    assert first.json() == again.json()
    assert (first.json()["turn"], first.json()["text"]) == (2, "Second.")
    assert other.status_code == 409


@pytest.mark.parametrize(
    "event", [{"type": "custom"}, {"type": "custom", "text": " "}, {"type": "odd"}, {}]
)
async def test_an_event_that_says_nothing_is_refused(
    database: OneDatabase, event: dict[str, str]
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        refused = await server.http.post(f"/v1/agents/{agent}/events", json=event)
        assert refused.status_code == 422
        assert server.rows("SELECT 1 FROM turns") == []


async def test_an_event_streams_and_a_person_cannot_pass_for_one(database: OneDatabase) -> None:
    model = ScriptedModel([say("Welcome!"), say("No.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        stream = await server.http.post(
            f"/v1/agents/{agent}/events", json={"type": "login", "stream": True}
        )
        await server.say(agent, "[event] login")
    assert "event: message\n" in stream.text
    assert not model.last_prompt[-1].text.startswith("[event]")
