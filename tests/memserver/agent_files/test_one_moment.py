"""An export is of one moment, whatever runs beside it; an import checks that it is."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.agent_files import closed, opened, smallest, with_messages
from tests.support.compacting import JOBS, RESERVED, WINDOW, chat, fill, talk_until_queued
from tests.support.nightly import times
from tests.support.processes import eventually
from tests.support.server import OneDatabase, Server, serving

EXPORTS = int(os.environ.get("EXPORTS", times(6, 1000)))
PART = 100  # of one agent: `-n 8` spreads the parts over processes, `-k` over machines
PARTS = [
    pytest.param(min(PART, EXPORTS - done), id=f"{done + 1}-to-{min(done + PART, EXPORTS)}")
    for done in range(0, EXPORTS, PART)
]
WAITS = """SELECT 1 FROM pg_locks WHERE relation = 'section_edits'::regclass AND NOT granted"""


def talking() -> ScriptedModel:
    return ScriptedModel(chat, context_window=WINDOW, summary="They talked of days.")


async def export(server: Server, agent: str) -> bytes:
    answer = await server.http.get(f"/v1/agents/{agent}/export")
    assert answer.status_code == 200, answer.text
    return answer.content


async def import_file(server: Server, content: bytes, **query: Any) -> dict[str, Any]:
    answer = await server.http.post("/v1/agents/import", content=content, params=query)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def assert_of_one_moment(content: bytes) -> None:
    """Every message is in the summary or in the prompt, and none in both."""
    values = opened(content)
    start = values["agent.json"]["state"].get("queue_start", 0)
    assert max((each["until"] for each in values["summaries.jsonl"]), default=0) == start


async def test_an_export_that_meets_a_compaction_has_the_agent_as_it_was_before(
    database: OneDatabase,
) -> None:
    async with serving(database, talking(), llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent(name="sam")
        await talk_until_queued(server, agent)
        with psycopg.connect(database.superuser) as holding:
            holding.execute("LOCK TABLE section_edits")  # the first list that an export reads
            exporting = asyncio.create_task(export(server, agent))
            await eventually(lambda: server.rows(WAITS))
            await server.run_jobs()
            assert server.rows("SELECT count(*) FROM summaries") == [(1,)]
        content = await exporting
        assert_of_one_moment(content)
        assert opened(content)["summaries.jsonl"] == []
        copy = await import_file(server, content, name="copy")
        assert copy["not_carried"] == []
        for _ in range(2):
            await server.say(copy["agent"]["id"], "Are you there?")
            await server.run_jobs()


@pytest.mark.timeout(times(120, 3600))
@pytest.mark.parametrize("exports", PARTS)
async def test_every_copy_of_an_agent_exported_beside_compactions_imports_and_turns_answers(
    database: OneDatabase, exports: int
) -> None:
    past = [{"role": "user", "text": "It rained all day."}] * 5

    async with serving(
        database, talking(), llm_max_output_tokens=RESERVED, database_pool_size=10
    ) as server:
        agent = await server.create_agent(name="sam")
        await fill(server, agent)
        url = f"/v1/agents/{agent}/messages"

        async def live() -> None:
            for text in ("Hello.", "And now? " * 40):
                await server.say(agent, text)
                await server.http.post(f"{url}/import", json={"messages": past})
                await server.run_jobs()

        for number in range(0, exports, 2):
            living = asyncio.create_task(live())
            contents = [await export(server, agent), await export(server, agent)]
            await living
            for content in contents:
                assert_of_one_moment(content)
                copy = (await import_file(server, content, name=f"copy {number}"))["agent"]["id"]
                said = await server.say(copy, "Are you there?")
                assert said["text"] == "I see."
                await server.run_jobs()
                assert (await server.http.delete(f"/v1/agents/{copy}")).status_code == 204
        assert server.rows(f"SELECT count(*) > 0 FROM summaries WHERE agent_id = '{agent}'") == [
            (True,)
        ]
        assert server.rows(JOBS) == []


async def test_a_file_whose_summary_covers_more_than_has_left_the_prompt_is_repaired(
    database: OneDatabase,
) -> None:
    values = with_messages(40)
    values["agent.json"]["state"] |= {"queue_start": 2000}
    values["summaries.jsonl"] = [
        {"until": until, "text": text, "tokens": 1, "evicted": 1, "method": "model",
         "created_at": "2026-01-02T03:04:05Z"}
        for until, text in ((2000, "Rain."), (3005, "Rain and snow."))
    ]  # fmt: skip
    async with serving(database, talking()) as server:
        made = await import_file(server, closed(values))
        assert [each["kind"] for each in made["not_carried"]] == ["summary"]
        agent = made["agent"]["id"]
        context = await server.get(f"{agent}/context")
        assert context["queue"][0]["position"] == 3005
        assert (await server.say(agent, "Hello."))["text"] == "I see."
        assert_of_one_moment(await export(server, agent))


async def test_a_file_that_contradicts_itself_is_refused(database: OneDatabase) -> None:
    summary = {"until": 9000, "text": "s", "tokens": 1, "evicted": 1, "method": "model",
               "created_at": "2026-01-02T03:04:05Z"}  # fmt: skip
    late, far, lost = with_messages(10), with_messages(10), with_messages(20)
    late["summaries.jsonl"] = [summary]
    far["agent.json"]["state"]["queue_start"] = 9000
    del lost["turns.jsonl"][0]
    async with serving(database, talking()) as server:
        for values, why in ((late, "stands after"), (far, "stands after"), (lost, "in no turn")):
            answer = await server.http.post("/v1/agents/import", content=closed(values))
            assert answer.status_code == 422
            error = answer.json()["error"]
            assert (error["code"], why in error["message"]) == ("agent_file_corrupt", True)
        assert server.rows("SELECT count(*) FROM agents") == [(0,)]


async def test_a_summary_that_was_to_be_written_again_is_written_again_in_the_copy(
    database: OneDatabase,
) -> None:
    async with serving(database, talking(), llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent(name="sam")
        await talk_until_queued(server, agent)
        await server.run_jobs()
        first = (await server.get(f"{agent}/messages", order="asc"))["items"][0]["position"]
        await server.http.delete(f"/v1/agents/{agent}/messages/{first}")
        content = await export(server, agent)
        await server.http.delete(f"/v1/agents/{agent}")
        await import_file(server, content)
        assert server.rows("SELECT outdated FROM summaries") == [(True,)]
        await server.run_jobs()
        [(outdated, text)] = server.rows("SELECT outdated, text FROM summaries")
        assert (outdated, "They talked of days." in text) == (False, True)


async def test_timers_move_with_the_agent_and_those_whose_time_is_over_go_off_at_once(
    database: OneDatabase,
) -> None:
    soon = datetime.now(UTC) + timedelta(days=2)
    async with serving(database, talking(), llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent(name="sam")
        timer = {"text": "Ask how it went.", "at": soon.isoformat()}
        await server.http.post(f"/v1/agents/{agent}/timers", json=timer)
        content = await export(server, agent)
        assert [each["text"] for each in opened(content)["timers.jsonl"]] == [timer["text"]]
        copy = (await import_file(server, content, name="copy"))["agent"]["id"]
        [kept] = (await server.get(f"{copy}/timers"))["items"]
        assert (kept["text"], datetime.fromisoformat(kept["at"])) == (timer["text"], soon)
        late = {**smallest("late"), "timers.jsonl": [{"text": "x", "due": "2020-01-01T00:00:00Z"}]}
        await import_file(server, closed(late))
        over = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'timer' AND scheduled_at < now()"
        assert server.rows(over) == [(1,)]
