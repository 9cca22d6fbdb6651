"""The queue manager: warns once, evicts at the window, summarises, and loses nothing."""

import math
from collections.abc import Sequence

import pytest

from memserver.errors import ContextOverflow, ModelTimeout, ModelUnavailable
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving

WINDOW = 1500
RESERVED = 200


def chat(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Call:
    return say("I see.", thought="I listen.")


async def talk(server: Server, agent: str, count: int) -> list[str]:
    texts = [
        f"This is message number {number} and it tells of day {number}." for number in range(count)
    ]
    for text in texts:
        await server.say(agent, text)
    return texts


async def test_the_pressure_alert_comes_once_in_each_period(database: OneDatabase) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await talk(server, agent, 60)
        alerts = server.rows(
            "SELECT count(*) FROM messages WHERE starts_with(content, 'Memory pressure')"
        )
        evictions = server.rows("SELECT count(*) FROM summaries")
    assert evictions[0][0] >= 2
    assert alerts[0][0] in (evictions[0][0], evictions[0][0] + 1)


async def test_every_prompt_fits_the_window_and_every_message_stays_in_recall(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)  # raises ContextOverflow itself
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        texts = await talk(server, agent, 60)
        context = await server.get(f"{agent}/context")
        for text in (texts[0], texts[30], texts[59]):
            found = await server.get(f"{agent}/recall/search", query=text, mode="exact")
            assert [item["text"] for item in found["items"]] == [text]
        counted = server.rows(
            "SELECT message_count, (SELECT count(*) FROM messages) FROM agent_state"
        )
    assert context["used"] <= WINDOW - RESERVED
    around = math.ceil(model.message_overhead * context["token_scale"])
    assert context["used"] == sum(part["tokens"] for part in context["parts"]) + around
    assert counted[0][0] == counted[0][1]


async def test_an_eviction_takes_the_oldest_half_of_the_queue(database: OneDatabase) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        while not server.rows("SELECT 1 FROM summaries"):
            before = await server.get(f"{agent}/context")
            await talk(server, agent, 1)
        [[until, evicted]] = server.rows("SELECT until, evicted FROM summaries")
    queue = before["queue"]
    gone = [message for message in queue if message["position"] < until]
    assert len(gone) == evicted
    share = sum(message["tokens"] for message in gone) / sum(m["tokens"] for m in queue)
    assert 0.45 <= share <= 0.6


@pytest.mark.parametrize("failure", [ModelUnavailable("down"), ModelTimeout("slow"), "", "  "])
async def test_a_failing_summariser_leaves_an_extract_and_says_so(
    database: OneDatabase, failure: str | Exception
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW, summary=lambda _: failure)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await server.say(agent, "My cello is called Hugo.")
        while not server.rows("SELECT 1 FROM summaries"):
            await talk(server, agent, 1)
        rows = server.rows("SELECT method, failure, text FROM summaries")
        context = await server.get(f"{agent}/context")
        answer = await server.say(agent, "Are you there?")
    [[method, reason, text]] = rows
    assert method == "extractive"
    assert reason
    assert context["summary_failure"] == reason
    assert "My cello is called Hugo." in text
    assert len(model.writes) == 2
    assert answer["text"] == "I see."


async def test_the_summariser_gets_what_is_evicted_in_pieces_that_fit_its_window(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW, summary="Notes.")
    long = " ".join(f"word{number}" for number in range(700))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        past = [{"role": "user", "text": f"{number} {long}"} for number in range(12)]
        done = await server.http.post(
            f"/v1/agents/{agent}/messages/import", json={"messages": past}
        )
        assert done.status_code == 200, done.text
        context = await server.get(f"{agent}/context")
    assert len(model.writes) >= 3
    assert context["used"] <= WINDOW - RESERVED


async def test_a_message_larger_than_the_window_is_kept_whole_and_shown_shortened(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    huge = " ".join(f"word{number}" for number in range(20_000))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, huge)
        found = await server.get(f"{agent}/recall/search", query="word19999", mode="exact")
        again = await server.say(agent, "What did I send?")
    assert answer["text"] == again["text"] == "I see."
    assert [item["text"] for item in found["items"]] == [huge]
    shown = model.seen[0].prompt[1].text
    assert "word0 word1 " in shown
    assert shown.endswith("word19999")
    assert "shortened: the whole has" in shown


async def test_a_shortened_message_has_its_time_in_the_zone_that_the_agent_has_now(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    huge = " ".join(f"word{number}" for number in range(20_000))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent(options={"timezone": "UTC"})
        await server.say(agent, huge)
        await server.say(agent, "And?")
        there = {"options": {"timezone": "Asia/Tokyo"}}
        changed = await server.http.patch(f"/v1/agents/{agent}", json=there)
        assert changed.status_code == 200, changed.text
        await server.say(agent, "And now?")
    before, now = (seen.prompt[1].text for seen in model.seen[-2:])
    assert "shortened: the whole has" in before
    assert "shortened: the whole has" in now
    assert before[: before.index("]")] != now[: now.index("]")]


async def test_a_working_context_that_leaves_no_room_is_a_clear_error(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent(
            sections=[{"name": "human", "text": "x " * 900, "limit": 2000}]
        )
        failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "hello"})
        error = failed.json()["error"]
        assert (failed.status_code, error["code"]) == (422, "context_overflow")
        assert "working context" in error["hint"]
        edit = await server.http.patch(
            f"/v1/agents/{agent}/working-context/human", json={"text": "Name: Ada"}
        )
        assert edit.status_code == 200
        answer = await server.say(agent, "And now?")
    assert answer["text"] == "I see."


async def test_imported_messages_are_stored_counted_evicted_and_summarised_without_replies(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(chat, context_window=WINDOW, summary="They met in May.")
    past = [
        {
            "role": "user" if number % 2 == 0 else "assistant",
            "text": f"Line {number} of our talk, about nothing much at all.",
            "created_at": f"2024-05-{1 + number // 50:02}T10:{number % 50:02}:00+00:00",
        }
        for number in range(700)
    ]
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        done = await server.http.post(
            f"/v1/agents/{agent}/messages/import", json={"messages": past}
        )
        assert (done.status_code, done.json()["stop_reason"]) == (200, "imported")
        assert model.seen == []
        found = await server.get(
            f"{agent}/recall/search", start_date="2024-05-03", end_date="2024-05-03"
        )
        context = await server.get(f"{agent}/context")
        answer = await server.say(agent, "Hello again!")
    assert found["total"] == 50
    assert found["items"][0]["created_at"] == "2024-05-03T10:00:00Z"
    assert found["items"][0]["text"] == past[100]["text"]
    assert context["used"] <= WINDOW - RESERVED
    assert answer["stop_reason"] == "message_sent"
    assert "They met in May." in model.last_prompt[0].text
    assert any("Line 699 of our talk" in str(message) for message in model.last_prompt)


async def test_an_import_repeated_with_its_key_is_stored_once(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        for _ in range(2):
            done = await server.http.post(
                f"/v1/agents/{agent}/messages/import",
                json={"messages": [{"role": "user", "text": "once"}]},
                headers={"Idempotency-Key": "import-1"},
            )
            assert done.status_code == 200
        history = await server.get(f"{agent}/messages")
    assert [item["text"] for item in history["items"]] == ["once"]


async def test_an_endpoint_that_says_too_long_leads_to_an_eviction_and_a_retry_three_times_in_a_turn(
    database: OneDatabase,
) -> None:
    too_long = ContextOverflow("maximum context length is 1000 tokens")
    ok = [say("ok")] * 6
    script = [*ok, too_long, say("It fits now."), *[too_long] * 4, say("Back.")]
    model = ScriptedModel(script)
    async with serving(database, model) as server:
        agent = await server.create_agent()
        await talk(server, agent, 6)
        answer = await server.say(agent, "Is it too long?")
        assert answer["text"] == "It fits now."
        assert len(server.rows("SELECT 1 FROM summaries")) == 1
        assert len(model.seen[-1].prompt) < len(model.seen[-2].prompt)
        failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "And now?"})
        assert failed.status_code == 422
        assert "MEMSERVER_LLM_CONTEXT_WINDOW" in failed.json()["error"]["hint"]
        again = await server.say(agent, "Hello?")
    assert again["text"] == "Back."


async def test_a_refusal_that_names_a_smaller_window_is_tried_again_without_an_eviction(
    database: OneDatabase,
) -> None:
    class Smaller(ScriptedModel):
        """Learns its window from the refusal, as the client of an endpoint does."""

        async def context_window(self) -> int:
            return 3000 if self.seen and len(self.seen) > 6 else 8192

    too_long = ContextOverflow("maximum context length is 3000 tokens", window=3000)
    model = Smaller([*[say("ok")] * 6, too_long, say("It fits now.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        await talk(server, agent, 6)
        before = await server.get(f"{agent}/context")
        answer = await server.say(agent, "Is it too long?")
        after = await server.get(f"{agent}/context")
        assert not server.rows("SELECT 1 FROM summaries")
    assert answer["text"] == "It fits now."
    assert (before["window"], after["window"]) == (8192, 3000)
    assert after["token_scale"] <= before["token_scale"] * 1.06


async def test_what_is_asked_stays_in_sight_while_it_is_answered(database: OneDatabase) -> None:
    """Also where results of the same turn fill the window, so that it is evicted and summarised meanwhile."""
    steps = iter(range(6))

    def search(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Call:
        seen.append([message.text for message in prompt])
        if (number := next(steps, None)) is None:
            return say("It was day 3.")
        note = f"Note {number}: " + "the day of the fair was fine, " * 20
        return Call("archival_memory_insert", {"content": note, "request_heartbeat": True})

    seen: list[list[str]] = []
    model = ScriptedModel(search, context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await server.say(agent, "Which day was the fair?")
        evictions = server.rows("SELECT count(*) FROM summaries")
    assert evictions[0][0] >= 1
    assert len(seen) == 7
    assert all(any("Which day was the fair?" in text for text in texts) for texts in seen)
