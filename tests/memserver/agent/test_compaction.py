"""Compaction: a job after the turn, which nobody waits for and which may be cut off at any point."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memserver.agent.compaction import compact
from memserver.messages import PromptMessage, ToolSpec
from memserver.storage.database import Database, Transaction
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.support.compacting import JOBS, RESERVED, WINDOW, Writer, chat, fill, talk_until_queued
from tests.support.server import OneDatabase, serving

SUMMARIES = "SELECT until, evicted, text FROM summaries ORDER BY until"
STATE = "SELECT queue_start, pressure_warned FROM agent_state"


async def test_a_turn_that_leaves_the_queue_too_long_is_answered_before_it_is_compacted(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW, summary="They talked of days.")
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await talk_until_queued(server, agent)
        before = await server.get(f"{agent}/context")
        assert server.rows(JOBS) == [(agent,)]
        assert model.writes == []
        await server.run_jobs()
        after = await server.get(f"{agent}/context")
        assert server.rows(JOBS) == []
        assert len(server.rows(SUMMARIES)) == 1
        assert server.rows(STATE)[0][1] is False
        await server.say(agent, "And now?")
    assert after["used"] < 0.7 * (WINDOW - RESERVED) < 0.9 * (WINDOW - RESERVED) <= before["used"]
    assert before["used"] <= WINDOW - RESERVED
    assert after["queue"] == before["queue"][-len(after["queue"]) :]
    assert "They talked of days." in model.last_prompt[0].text


async def test_nothing_is_evicted_behind_the_back_of_an_agent_that_was_not_warned(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await fill(server, agent)
        assert server.rows(STATE)[0][1] is False
        assert server.rows(JOBS) == []
        await server.say(agent, "Hello.")
        assert "Memory pressure" in model.last_prompt[-1].text
        assert server.rows(JOBS) == [(agent,)]


async def test_a_queue_that_one_turn_has_overfilled_is_compacted_before_the_next_one(
    database: OneDatabase,
) -> None:
    long = "word " * 600
    script = [say(long, request_heartbeat=True), say(long), say("Here I am.")]
    model = ScriptedModel(script, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await server.say(agent, long)
        assert server.rows(STATE)[0][1] is False  # there is nothing older that could be saved
        await server.run_jobs()
        after = await server.get(f"{agent}/context")
        summaries = len(model.writes)
        await server.say(agent, "Are you there?")
    assert after["used"] <= WINDOW - RESERVED
    assert len(model.writes) == summaries


async def test_a_compaction_that_comes_too_late_changes_nothing(database: OneDatabase) -> None:
    model = Writer(chat, context_window=WINDOW, summary=lambda _: f"Notes {len(model.writes)}.")
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await talk_until_queued(server, agent)
        job = asyncio.create_task(server.run_jobs())
        await model.asked.wait()
        await server.say(agent, "word " * 400)  # finds no room, so its turn evicts
        [(until, evicted, text)] = server.rows(SUMMARIES)
        assert text == "Notes 2."
        model.go_on.set()
        await job
        assert server.rows(SUMMARIES)[0] == (until, evicted, text)
        assert "Notes 1." not in str(server.rows(SUMMARIES))


async def test_a_turn_continues_with_the_queue_that_a_compaction_beside_it_left(
    database: OneDatabase,
) -> None:
    held = Held(
        Call(
            "working_context_append",
            {"section": "human", "content": "x", "request_heartbeat": True},
        ),
        asyncio.Event(),
    )
    script: list[Any] = []

    def rule(prompt: Sequence[PromptMessage], specs: Sequence[ToolSpec]) -> Any:
        return script.pop(0) if script else chat(prompt, specs)

    model = ScriptedModel(rule, context_window=WINDOW, summary="They talked of days.")
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await talk_until_queued(server, agent)
        script.append(held)
        turn = asyncio.create_task(server.say(agent, "Note this."))
        await held.reached.wait()
        await server.run_jobs()
        [(until, _, _)] = server.rows(SUMMARIES)
        held.release.set()
        answer = await turn
        assert server.rows(STATE)[0][0] == until
        await talk_until_queued(server, agent)  # the next period has its own alert
        alerts = server.rows(
            "SELECT count(*) FROM messages WHERE starts_with(content, 'Memory pressure')"
        )
        await server.run_jobs()
        assert len(server.rows(SUMMARIES)) == 2
    assert answer["text"] == "I see."
    first, second, *_ = (seen.prompt for seen in model.seen if "Note this." in str(seen.prompt))
    assert "They talked of days." not in first[0].text
    assert "They talked of days." in second[0].text
    assert len(second) < len(first)
    assert alerts == [(2,)]


async def test_a_deleted_agents_compaction_does_nothing(database: OneDatabase) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await talk_until_queued(server, agent)
        assert (await server.http.delete(f"/v1/agents/{agent}")).status_code == 204
        await server.run_jobs()
        assert server.rows("SELECT count(*) FROM procrastinate_jobs") == [(0,)]
    assert model.writes == []


class Cut(Exception):
    """The process died here, as far as the database can tell."""


async def test_a_compaction_cut_off_at_any_await_leaves_the_old_queue_or_the_new_one(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await talk_until_queued(server, agent)
        old = server.rows(STATE), server.rows(SUMMARIES)
        assert old[1] == []
        cut = Cutting(monkeypatch)
        run = type("Run", (), {"tenant": "default", "args": {"agent_id": agent}})()
        seen = []
        for point in range(100):
            cut.at(point)
            try:
                await compact(server.services.deps, run)
            except Cut:
                [(start, warned)] = server.rows(STATE)
                summaries = server.rows(SUMMARIES)
                new = len(summaries) == 1 and (start, warned) == (summaries[0][0], False)
                assert new or (server.rows(STATE), summaries) == old
                seen.append("new" if new else "old")
            else:
                break
        cut.at(None)
        again = await server.say(agent, "Are you there?")
    assert cut.counted >= 5
    assert seen == sorted(seen, reverse=True)
    assert "old" in seen
    assert len(seen) == point
    assert again["text"] == "I see."


class Cutting:
    """Fails at one await of those that a compaction has: transactions, statements, the model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted = 0
        self._at: int | None = None
        tenant = Database.tenant

        @asynccontextmanager
        async def cut_tenant(database: Database, name: str) -> AsyncIterator[Transaction]:
            self._pass()
            async with tenant(database, name) as tx:
                self._pass()
                yield tx
                self._pass()
            self._pass()

        monkeypatch.setattr(Database, "tenant", cut_tenant)
        for name in ("write", "count_tokens", "context_window"):
            monkeypatch.setattr(ScriptedModel, name, self._cut(getattr(ScriptedModel, name)))

    def at(self, point: int | None) -> None:
        self.counted, self._at = 0, point

    def _pass(self) -> None:
        self.counted += 1
        if self._at is not None and self.counted > self._at:
            raise Cut

    def _cut(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def cut(*arguments: Any, **named: Any) -> Any:
            self._pass()
            answer = await method(*arguments, **named)
            self._pass()
            return answer

        return cut
