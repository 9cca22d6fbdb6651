"""Timers: at their time their text comes to the agent as an event, once."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memserver.memory import timers
from memserver.storage import timers as stored
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving

EVENTS = "SELECT content FROM messages WHERE role = 'system' ORDER BY position"
DUE = "SELECT scheduled_at FROM procrastinate_jobs WHERE task_name = 'timer' AND status = 'todo'"
VIENNA = ZoneInfo("Europe/Vienna")
ASK = {"in_seconds": 3600, "text": "Ask how it went."}


async def set_one(server: Server, agent: str, **timer: Any) -> dict[str, Any]:
    answer = await server.http.post(f"/v1/agents/{agent}/timers", json=timer)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_timer_is_stored_with_its_job_and_goes_off_as_an_event_after_a_restart(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        made = await set_one(server, agent, **ASK)
        listed = await server.get(f"{agent}/timers")
        [[due]] = server.rows(DUE)
        assert due == datetime.fromisoformat(made["at"])
        assert server.rows(EVENTS) == []
    assert listed == {"items": [made], "next": None}
    model = ScriptedModel([say("How did it go?")])
    async with serving(database, model) as server:
        await server.run_jobs()
        await server.http.get(f"/v1/agents/{agent}/turns/1/events")  # to the turn's end
        assert (await server.get(f"{agent}/timers"))["items"] == []
        history = await server.get(f"{agent}/messages", order="asc")
    texts = [each["text"] for each in history["items"]]
    assert texts == ["[event] timer: Ask how it went.", "How did it go?"]


async def test_a_timer_whose_job_dies_after_the_event_goes_off_once(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[object] = []
    remove = stored.remove

    async def dies_first(tx: Any, timer_id: Any) -> None:
        removed.append(timer_id)
        if len(removed) == 1:
            raise RuntimeError("The process died here.")
        await remove(tx, timer_id)

    monkeypatch.setattr(stored, "remove", dies_first)
    model = ScriptedModel([say("How did it go?")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        await set_one(server, agent, **ASK)
        await server.run_jobs()
        await server.http.get(f"/v1/agents/{agent}/turns/1/events")  # to the turn's end
        assert len(removed) == 2
        assert server.rows(EVENTS) == [("[event] timer: Ask how it went.",)]
        assert (await server.get(f"{agent}/timers"))["items"] == []


async def test_a_deleted_timer_and_one_of_a_deleted_agent_do_not_go_off(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent, gone = await server.create_agent(), await server.create_agent()
        made = await set_one(server, agent, **ASK)
        await set_one(server, gone, **ASK)
        url = f"/v1/agents/{agent}/timers/{made['id']}"
        other = await server.http.delete(url.replace(agent, gone))
        assert (other.status_code, other.json()["error"]["code"]) == (404, "not_found")
        assert (await server.http.delete(url)).status_code == 204
        assert (await server.http.delete(url)).status_code == 404
        assert (await server.http.delete(f"/v1/agents/{gone}")).status_code == 204
        await server.run_jobs()
        assert server.rows(EVENTS) == []
        assert server.rows("SELECT 1 FROM timers") == []


async def test_a_timer_that_cannot_be_is_refused(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "MOST", 1)
    now = datetime.now(UTC)
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        refused = [
            await server.http.post(f"/v1/agents/{agent}/timers", json=body)
            for body in (
                {"text": "x"},
                {"text": "x", "at": now.isoformat(), "in_seconds": 5},
                {"text": "x", "at": (now - timedelta(days=1)).isoformat()},
                {"text": "x", "at": (now + timedelta(days=9999)).isoformat()},
                {"text": " ", "in_seconds": 5},
                {"text": "x", "in_seconds": 0},
                {"text": "x", "at": "2999-01-01T10:00"},
            )
        ]
        await set_one(server, agent, **ASK)
        many = await server.http.post(f"/v1/agents/{agent}/timers", json=ASK)
        assert server.rows("SELECT count(*) FROM timers") == [(1,)]
    assert {each.status_code for each in refused} == {422}
    assert "1 timers" in many.json()["error"]["message"]


async def test_an_agent_sets_one_itself_only_where_it_has_the_tool(database: OneDatabase) -> None:
    def remind(at: str) -> Call:
        arguments = {"at": at, "text": "Ask about the exam.", "request_heartbeat": True}
        return Call("schedule_message", arguments)

    soon = datetime.now(VIENNA).replace(microsecond=0, tzinfo=None) + timedelta(days=2)
    script = [say("Hi."), remind("2020-01-01T10:00"), remind(soon.isoformat()), say("I will.")]
    model = ScriptedModel(script)
    async with serving(database, model) as server:
        agent = await server.create_agent(options={"timezone": "Europe/Vienna"})
        await server.say(agent, "Hello.")
        attached = await server.http.put(f"/v1/agents/{agent}/tools/schedule_message", json={})
        answer = await server.say(agent, "Remind me!")
        listed = await server.get(f"{agent}/timers")
    assert attached.status_code in (200, 201, 204)
    offered = [{tool.name for tool in seen.tools} for seen in model.seen]
    assert ["schedule_message" in names for names in offered] == [False, True, True, True]
    over, done, _ = (message["tool_call"] for message in answer["messages"])
    assert (over["state"], done["state"]) == ("failed", "done")
    assert "is over" in over["result"]
    [timer] = listed["items"]
    assert timer["text"] == "Ask about the exam."
    assert datetime.fromisoformat(timer["at"]) == soon.replace(tzinfo=VIENNA)
