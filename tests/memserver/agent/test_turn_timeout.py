"""A turn that takes too long ends with an error; what it committed stands, and the agent continues."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from memserver.agent import turn
from memserver.agent.deadline import Deadline
from memserver.llm.base import TextSink, Written
from memserver.messages import PromptMessage
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from memserver.tools.tool import RunnableTool, ToolContext, make_tool
from tests.support.server import OneDatabase, Server, serving

SECONDS = 1.0


@pytest.fixture(autouse=True)
def only_the_first_turn_is_short_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no test is in a hurry where the machine is slow."""
    begun = []

    def deadline(seconds: float | None) -> Deadline:
        if seconds is not None:
            begun.append(seconds)
        return Deadline(seconds if len(begun) <= 1 else 60)

    monkeypatch.setattr(turn, "Deadline", deadline)


def never() -> Held:
    return Held(say("never"), asyncio.Event())


async def refused(server: Server, agent: str, text: str = "hello") -> dict[str, Any]:
    answer = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": text})
    assert answer.status_code == 504, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == "turn_timeout"
    return error


async def test_a_model_that_never_answers_ends_the_turn_and_the_next_message_works(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([never(), say("I am back.")])
    async with serving(database, model, turn_timeout=SECONDS) as server:
        agent = await server.create_agent()
        error = await refused(server, agent)
        assert "longer than 1 seconds" in error["message"]
        assert "MEMSERVER_TURN_TIMEOUT" in error["hint"]
        turn = await server.get(f"{agent}/turns/1")
        assert (turn["state"], turn["stop_reason"]) == ("failed", "error")
        assert turn["error"] == error
        assert (await server.say(agent, "are you there?"))["text"] == "I am back."
        history = await server.get(f"{agent}/messages", order="asc")
    assert [item["text"] for item in history["items"]] == [
        "hello",
        "are you there?",
        "I am back.",
    ]


async def test_messages_that_wait_after_it_are_answered(database: OneDatabase) -> None:
    held = never()
    model = ScriptedModel([held, say("second"), say("third")])
    async with serving(database, model, turn_timeout=SECONDS) as server:
        agent = await server.create_agent()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(refused(server, agent))
            await held.reached.wait()
            later = [tasks.create_task(server.say(agent, text)) for text in ("b", "c")]
        assert sorted(task.result()["text"] for task in later) == ["second", "third"]


async def test_committed_steps_stand_and_were_reported(database: OneDatabase) -> None:
    append = Call(
        "working_context_append",
        {"section": "human", "content": "Name: Ada", "request_heartbeat": True},
    )
    model = ScriptedModel([append, never()])
    async with serving(database, model, turn_timeout=SECONDS) as server:
        agent = await server.create_agent()
        events = await server.events(agent, "I am Ada.")
        turn = await server.get(f"{agent}/turns/1")
        history = await server.get(f"{agent}/messages", order="asc")
    reported = dict(events)
    assert reported["tool_result"]["state"] == "done"
    assert reported["error"]["error"]["code"] == "turn_timeout"
    assert (reported["turn_ended"]["steps"], reported["turn_ended"]["stop_reason"]) == (1, "error")
    assert turn["steps"] == 1
    assert [item["role"] for item in history["items"]] == ["user", "assistant"]


def hanging(started: asyncio.Event, *, transactional: bool) -> RunnableTool:
    async def hang(context: ToolContext) -> str:
        """Hang."""
        if transactional:
            tx = await context.transaction.get()
            await tx.execute("UPDATE agents SET name = 'half done'")
        started.set()
        await asyncio.Event().wait()
        return "never"

    return make_tool(hang, transactional=transactional)


async def test_a_foreign_tool_that_hangs_is_closed_as_interrupted_and_that_is_reported(
    database: OneDatabase,
) -> None:
    started = asyncio.Event()
    model = ScriptedModel([Call("hang"), say("It did not end.")])
    tools = [hanging(started, transactional=False)]
    async with serving(database, model, tools, turn_timeout=SECONDS) as server:
        agent = await server.create_agent()
        reported = dict(await server.events(agent, "Go!"))
        assert started.is_set()
        assert reported["tool_result"]["state"] == "interrupted"
        assert reported["error"]["error"]["code"] == "turn_timeout"
        assert reported["turn_ended"]["steps"] == 1
        history = await server.get(f"{agent}/messages", order="asc")
        assert history["items"][1]["tool_call"]["state"] == "interrupted"
        assert (await server.say(agent, "And?"))["text"] == "It did not end."
    assert any(
        message.text.startswith("Failed: The turn's time was over while this ran")
        for message in model.last_prompt
    )


async def test_a_tool_that_hangs_in_its_transaction_leaves_no_trace(
    database: OneDatabase,
) -> None:
    started = asyncio.Event()
    model = ScriptedModel([Call("hang"), say("Nothing happened.")])
    tools = [hanging(started, transactional=True)]
    async with serving(database, model, tools, turn_timeout=SECONDS) as server:
        agent = await server.create_agent(name="whole")
        await refused(server, agent)
        assert started.is_set()
        assert server.rows("SELECT name FROM agents") == [("whole",)]
        assert server.rows("SELECT count(*) FROM tool_calls") == [(0,)]
        assert (await server.say(agent, "And?"))["text"] == "Nothing happened."


async def test_a_query_that_hangs_is_given_up_and_its_connection_serves_on(
    database: OneDatabase,
) -> None:
    async def wait(context: ToolContext) -> str:
        """Wait."""
        tx = await context.transaction.get()
        await tx.execute("SELECT pg_sleep(60)")
        return "never"

    model = ScriptedModel([Call("wait"), say("one"), say("two")])
    tools = [make_tool(wait, transactional=True)]
    async with serving(
        database, model, tools, turn_timeout=SECONDS, database_pool_size=2
    ) as server:
        agent = await server.create_agent()
        await refused(server, agent)
        assert (await server.say(agent, "And?"))["text"] == "one"
        assert (await server.say(agent, "And?"))["text"] == "two"


class Writer(ScriptedModel):
    """Its summaries never come."""

    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        self.writes.append(tuple(prompt))
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("limit", [SECONDS, 1e-9])
async def test_an_eviction_whose_summary_is_cut_off_changes_nothing(
    database: OneDatabase, limit: float
) -> None:
    async with serving(database, ScriptedModel([say("ok")])) as server:
        agent = await server.create_agent()
        past = [{"role": "user", "text": "word " * 250} for _ in range(8)]
        await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
    model = Writer(context_window=2000)
    state = "SELECT queue_start, pressure_warned FROM agent_state"
    async with serving(database, model, turn_timeout=limit) as server:
        before = server.rows(state)
        await refused(server, agent, "word " * 250)
        assert server.rows(state) == before
        assert server.rows("SELECT count(*) FROM summaries") == [(0,)]
    assert bool(model.writes) is (limit == SECONDS)


async def test_an_import_has_no_limit(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), turn_timeout=1e-9) as server:
        agent = await server.create_agent(options={"context_window": 2000})
        past = [{"role": "user", "text": "word " * 250} for _ in range(8)]
        answer = await server.http.post(
            f"/v1/agents/{agent}/messages/import", json={"messages": past}
        )
        assert server.rows("SELECT count(*) > 0 FROM summaries") == [(True,)]
    assert (answer.json()["state"], answer.json()["stop_reason"]) == ("done", "imported")
