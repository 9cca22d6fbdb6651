"""Messages that come in while a call waits: they are stored, reported, and answered after it, in order."""

import asyncio
import json
from typing import Any
from uuid import UUID

import httpx2
import pytest

from memserver.client import Client
from memserver.client.events import TurnQueued
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.memserver.tools.waiting import CLIENT, answer, asked, counting
from tests.support.client import served
from tests.support.server import OneDatabase, Server, serving

PAY = Call("pay", {"euros": 5})
OPENAI = ["chat/completions", "responses"]


async def post(server: Server, agent: str, text: str, **headers: str) -> httpx2.Response:
    url = f"/v1/agents/{agent}/messages"
    return await server.http.post(url, json={"text": text}, headers=headers)


async def ended(server: Server, agent: str, turn: int) -> dict[str, Any]:
    """The turn's last event, which comes when it does."""
    stream = await server.http.get(f"/v1/agents/{agent}/turns/{turn}/events")
    kind, data = stream.text.strip().split("\n\n")[-1].split("\n")[-2:]
    return {"kind": kind.removeprefix("event: "), **json.loads(data.removeprefix("data: "))}


async def over(server: Server, agent: str, turn: int) -> dict[str, Any]:
    """The turn, once it has ended, whoever resumes it."""
    with server.services.deps.events.subscribe(UUID(agent), turn) as queue:
        while (stands := await server.get(f"{agent}/turns/{turn}"))["finished_at"] is None:
            await queue.get()
    return stands


async def said(server: Server, agent: str) -> list[str]:
    history = await server.get(f"{agent}/messages", order="asc")
    return [item["text"] for item in history["items"] if item["text"]]


async def test_a_message_after_a_call_that_waits_is_stored_and_its_sender_answered_at_once(
    database: OneDatabase,
) -> None:
    ran: list[str] = []
    model = ScriptedModel([PAY, say("Paid."), say("Yes."), say("And me, too.")])
    async with serving(database, model, [counting(ran)]) as server:
        agent, call = await asked(server)
        first = await post(server, agent, "Are you there?")
        second = await post(server, agent, "And you?")
        stands = await server.get(f"{agent}/turns/2")
        assert len(model.seen) == 1
        await answer(server, agent, call, "approval", approve=True)
        assert (await ended(server, agent, 3))["stop_reason"] == "message_sent"
        later = await server.get(f"{agent}/turns/2")
        texts = await said(server, agent)
    assert (first.status_code, second.status_code) == (202, 202)
    reported = first.json()
    assert (reported["turn"], reported["text"], reported["stop_reason"]) == (2, "", "queued")
    blocking = reported["blocked_by"]
    assert (blocking["turn"], blocking["call_id"], blocking["name"]) == (1, call, "pay")
    assert (blocking["waits_for"], blocking["arguments"]) == ("approval", {"euros": 5})
    assert blocking["expires_at"] > blocking["created_at"]
    assert second.json()["blocked_by"] == blocking
    assert (stands["state"], stands["blocked_by"]) == ("waiting", blocking)
    assert (later["state"], later["blocked_by"]) == ("done", None)
    assert texts == ["Pay!", "Paid.", "Are you there?", "Yes.", "And you?", "And me, too."]


async def test_a_stream_after_a_call_that_waits_ends_with_what_it_waits_for(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([PAY, say("Then not."), say("Yes.")])
    async with serving(database, model, [counting([])]) as server:
        agent, call = await asked(server)
        [(kind, data)] = await server.events(agent, "Are you there?")
        again = await ended(server, agent, 2)
        await answer(server, agent, call, "approval", approve=False)
        after = await ended(server, agent, 2)
    assert (kind, data["turn"], data["blocked_by"]["call_id"]) == ("turn_queued", 2, call)
    assert again == {"kind": kind, **data}
    assert (after["kind"], after["stop_reason"]) == ("turn_ended", "message_sent")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", OPENAI)
async def test_a_client_of_openais_api_gets_an_error_that_explains_and_is_answered_later(
    database: OneDatabase, path: str, stream: bool
) -> None:
    model = ScriptedModel([PAY, say("Paid."), say("Yes.")])
    async with serving(database, model, [counting([])]) as server:
        agent, call = await asked(server)
        messages: list[Any] = [{"role": "user", "content": "Are you there?"}]
        field = "messages" if path.startswith("chat") else "input"
        body = {"model": agent, field: messages, "stream": stream}
        key = {"Idempotency-Key": "k"}
        reported = await server.http.post(f"/v1/{path}", json=body, headers=key)
        again = await server.http.post(f"/v1/{path}", json=body, headers=key)
        await answer(server, agent, call, "approval", approve=True)
        later = await server.http.post(f"/v1/{path}", json=body, headers=key)
        texts = await said(server, agent)
    assert (reported.status_code, again.status_code, later.status_code) == (409, 409, 200)
    error = reported.json()["error"]
    assert (error["code"], error["type"]) == ("agent_waits", "invalid_request_error")
    assert error["message"].startswith("The message is stored.")
    assert f"the call {call} of pay, which waits for an approval" in error["message"]
    assert reported.headers["x-should-retry"] == "false", "OpenAI's clients repeat what got 409"
    assert "Yes." in later.text
    assert texts == ["Pay!", "Paid.", "Are you there?", "Yes."]


async def test_a_client_that_sends_its_whole_history_has_what_waited_answered_once(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([PAY, say("Paid."), say("Yes."), say("Good.")])
    async with serving(database, model, [counting([])]) as server:
        agent, call = await asked(server)
        history = [{"role": "user", "content": "Pay!"}, {"role": "user", "content": "Hello?"}]
        reported = await server.http.post(
            "/v1/chat/completions", json={"model": agent, "messages": history}
        )
        await answer(server, agent, call, "approval", approve=True)
        await ended(server, agent, 2)
        history.append({"role": "user", "content": "How are you?"})
        later = await server.http.post(
            "/v1/chat/completions", json={"model": agent, "messages": history}
        )
        texts = await said(server, agent)
    assert (reported.status_code, later.status_code) == (409, 200)
    assert texts == ["Pay!", "Paid.", "Hello?", "Yes.", "How are you?", "Good."]


async def test_an_import_after_a_call_that_waits_is_stored(database: OneDatabase) -> None:
    model = ScriptedModel([PAY, say("Paid.")])
    past = {"messages": [{"role": "user", "text": "Long ago."}]}
    async with serving(database, model, [counting([])]) as server:
        agent, call = await asked(server)
        url = f"/v1/agents/{agent}/messages/import"
        reported = await server.http.post(url, json=past)
        await answer(server, agent, call, "approval", approve=True)
        assert (await ended(server, agent, 2))["stop_reason"] == "imported"
    assert (reported.status_code, reported.json()["state"]) == (202, "waiting")
    assert reported.json()["blocked_by"]["call_id"] == call


async def test_who_waits_when_the_turn_before_begins_to_wait_learns_of_it(
    database: OneDatabase,
) -> None:
    held = Held(PAY, asyncio.Event())
    async with serving(database, ScriptedModel([held]), [counting([])]) as server:
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/pay", json={"approval": True})
        first = asyncio.create_task(post(server, agent, "Pay!"))
        await held.reached.wait()
        conversation = server.services.conversation
        later = await conversation.post("default", UUID(agent), "Are you there?")
        second = asyncio.create_task(conversation.result("default", later))
        await asyncio.sleep(0)
        held.release.set()
        paused, queued = (await first).json(), (await second).ended
    assert paused["stop_reason"] == "requires_action"
    assert (queued.turn, queued.blocked_by.turn) == (2, 1)


async def test_what_waits_after_a_call_outlives_a_restart_and_every_worker_reports_it(
    database: OneDatabase,
) -> None:
    key = {"Idempotency-Key": "k"}
    async with (
        serving(database, ScriptedModel([PAY]), [counting([])]) as one,
        serving(database, ScriptedModel(), [counting([])]) as other,
    ):
        agent, call = await asked(one)
        reported = await post(other, agent, "Are you there?", **key)
        assert reported.status_code == 202
    model = ScriptedModel([say("Paid."), say("Yes.")])
    async with serving(database, model, [counting([])]) as two:
        again = await post(two, agent, "Are you there?", **key)
        await answer(two, agent, call, "approval", approve=True)
        later = await post(two, agent, "Are you there?", **key)
    assert (again.status_code, again.json()) == (202, reported.json())
    assert (later.status_code, later.json()["text"]) == (200, "Yes.")


async def test_a_cancelled_turn_lets_what_waits_after_it_continue(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([PAY, say("Yes.")]), [counting([])]) as server:
        agent, _ = await asked(server)
        reported = await post(server, agent, "Are you there?")
        blocking = reported.json()["blocked_by"]
        await server.http.post(f"/v1/agents/{agent}/turns/{blocking['turn']}/cancel")
        assert (await ended(server, agent, 2))["stop_reason"] == "message_sent"


async def waits_since(server: Server, agent: str, seconds: float) -> None:
    """As if the agent's call had waited for so long."""
    server.rows(
        "UPDATE tool_calls SET created_at = now() - make_interval(secs => %s) "
        "WHERE agent_id = %s AND state = 'waiting' RETURNING 1",
        seconds,
        agent,
    )


@pytest.mark.parametrize(
    ("tool", "reported"),
    [
        ("pay", "Failed: Nobody approved this in time, so it did not run."),
        (
            "open_file",
            "Failed: No result of this came in time; whether it took effect is not known.",
        ),
    ],
)
async def test_a_call_that_waited_too_long_expires_and_the_inbox_continues(
    database: OneDatabase, tool: str, reported: str
) -> None:
    ran: list[str] = []
    arguments = {"euros": 5} if tool == "pay" else {"path": "a"}
    script = [Call(tool, arguments), Call(tool, arguments), say("Nobody answers."), say("Yes.")]
    model = ScriptedModel(script)
    settings = {"waiting_call_seconds": 36_000, "lease_seconds": 0.3}
    async with serving(database, model, [counting(ran)], **settings) as server:
        await server.http.post("/v1/tools", json=CLIENT)
        fresh, _ = await asked(server, tool=tool)
        agent, call = await asked(server, tool=tool)
        await post(server, agent, "Are you there?")
        await waits_since(server, fresh, 30_000)
        await waits_since(server, agent, 37_000)
        last = await over(server, agent, 2)
        what = "approval" if tool == "pay" else "result"
        body = {"approve": True} if tool == "pay" else {"result": "x"}
        late = await answer(server, agent, call, what, **body)
        waiting = (await server.http.get("/v1/calls/waiting")).json()["items"]
        texts = await said(server, agent)
    assert last["stop_reason"] == "message_sent"
    assert (ran, texts) == ([], ["Pay!", "Nobody answers.", "Are you there?", "Yes."])
    assert any(seen.prompt[-1].text == reported for seen in model.seen)
    assert (late.status_code, "its time was over" in late.text) == (409, True)
    assert [item["agent_id"] for item in waiting] == [fresh]


async def test_a_call_of_any_tenant_expires_also_where_no_server_ran_meanwhile(
    database: OneDatabase,
) -> None:
    tool = counting([])
    async with serving(database, ScriptedModel([PAY]), [tool]) as one:
        await one.operate()
        one.http.headers.update(await one.create_tenant("acme"))
        agent, _ = await asked(one)
        await waits_since(one, agent, 700_000)
        headers = {"Authorization": one.http.headers["Authorization"]}
    async with serving(database, ScriptedModel([say("Nobody answers.")]), [tool]) as two:
        two.http.headers.update(headers)
        last = await over(two, agent, 1)
        assert await said(two, agent) == ["Pay!", "Nobody answers."]
    assert last["stop_reason"] == "message_sent"


def test_the_client_says_what_a_message_waits_for(database: OneDatabase) -> None:
    append = Call("working_context_append", {"section": "human", "content": "Ada"})
    model = ScriptedModel([append, say("Noted."), say("Yes."), say("Still.")])
    with served(database, model) as server, Client(server.url) as client:
        agent = client.agents.create()
        client.tools.attach(agent.id, "working_context_append", approval=True)
        client.messages.send(agent.id, "I am Ada.")
        [call] = client.calls.all()
        queued = client.messages.send(agent.id, "Are you there?")
        assert (queued.stop_reason, queued.blocked_by, queued.waiting) == ("queued", call, None)
        stream = client.messages.stream(agent.id, "Still?")
        assert list(stream) == [TurnQueued(turn=3, blocked_by=call)]
        assert client.turns.get(agent.id, 3).blocked_by == call
        client.calls.approve(agent.id, call.call_id)
        assert [event for event in stream.resumed() if event.__class__.__name__ == "MessageSaid"]
        assert [each.text for each in client.messages.all(agent.id) if each.text] == [
            "Still.",
            "Still?",
            "Yes.",
            "Are you there?",
            "Noted.",
            "I am Ada.",
        ]
