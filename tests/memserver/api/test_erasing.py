"""A message is deleted with everything that was derived from it, and nothing that runs meanwhile brings it back."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.messages import PromptMessage
from memserver.storage.erasure import NOTE, PLACEHOLDER
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.compacting import (
    RESERVED,
    WINDOW,
    Writer,
    chat,
    of_prompt,
    positions,
    talk_until_queued,
)
from tests.support.erased import WORD, holding
from tests.support.server import OneDatabase, Server, serving

SUMMARY = "SELECT text, outdated FROM summaries ORDER BY until"


class Pausing(HashingEmbedder):
    """Waits before it embeds any text."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.release = asyncio.Event(), asyncio.Event()

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if texts:
            self.reached.set()
            await self.release.wait()
        return await super().embed(texts)


async def delete(server: Server, path: str, **query: Any) -> dict[str, Any]:
    answer = await server.http.delete(f"/v1/agents/{path}", params=query)
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


def searches(prompt: Sequence[PromptMessage], _: object) -> Call:
    """Looks up a secret before it answers."""
    if WORD in last_user_text(prompt) and prompt[-1].role == "user":
        return Call("recall_memory_search", {"query": WORD, "request_heartbeat": True})
    return say(f"Noted: {WORD}." if WORD in last_user_text(prompt) else "I see.")


async def test_of_an_exchange_that_is_deleted_nothing_is_left_anywhere(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(searches)
    async with serving(database, model) as server:
        agent = await server.create_agent()
        key = {"Idempotency-Key": "k1"}
        await server.say(agent, "I live in Graz.")
        await server.say(agent, f"My password is {WORD}.", **key)
        await server.say(agent, "It rains today.")
        await server.run_jobs()
        before = await positions(server, agent)
        assert {"messages", "tool_calls", "recall_blocks", "message_words"} <= {*holding(database)}

        assert await delete(server, f"{agent}/turns/2") == {
            "messages": 3,
            "rewrites_summary": False,
        }
        assert holding(database) == []
        assert await positions(server, agent) == [each for each in before if each // 1000 != 2]
        for mode in ("exact", "words", "meaning", "hybrid"):
            found = await server.get(f"{agent}/recall/search", query=WORD, mode=mode)
            assert WORD not in str(found)
        everything = await server.get(f"{agent}/recall/search", mode="exact")
        assert everything["total"] == len(everything["items"]) == 4
        near = await server.get(f"{agent}/recall/search", query="rains today", mode="meaning")
        assert near["coverage"] == {"embedded": 4, "messages": 4, "complete": True}
        assert (await server.get(agent))["message_count"] == 4
        [(table,)] = server.rows("SELECT table_name FROM recall_embeddings")
        assert server.rows(f"SELECT 1 FROM {table} WHERE position / 1000 = 2") == []
        exported = await server.http.get(f"/v1/agents/{agent}/export")
        assert exported.status_code == 200
        again = await server.http.post(
            f"/v1/agents/{agent}/messages", json={"text": f"My password is {WORD}."}, headers=key
        )
        assert again.status_code == 409
        assert "was deleted" in again.json()["error"]["message"]
        await server.say(agent, "And now?")
        assert WORD not in of_prompt(model.last_prompt)
        assert "It rains today." in of_prompt(model.last_prompt)
        gone = await server.http.delete(f"/v1/agents/{agent}/turns/2")
        assert gone.status_code == 404
        assert holding(database) == []


async def test_one_message_goes_with_its_call_and_the_others_keep_their_positions(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(searches)
    async with serving(database, model) as server:
        agent = await server.create_agent()
        await server.say(agent, f"My password is {WORD}.")
        before = await positions(server, agent)
        done = await delete(server, f"{agent}/messages/1001")
        assert done == {"messages": 1, "rewrites_summary": False}
        assert await positions(server, agent) == [each for each in before if each != 1001]
        answer = await server.http.post(
            f"/v1/agents/{agent}/messages/delete", json={"positions": [1000, 1002], "turns": []}
        )
        assert answer.json()["messages"] == 2
        assert holding(database) == []
        await server.say(agent, "Hello.")
        calls = [
            each.call.id for each in model.last_prompt if each.call and each.role == "assistant"
        ]
        results = [each.call.id for each in model.last_prompt if each.call and each.role == "tool"]
    assert calls == results == []


async def test_all_are_deleted_or_none(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(searches)) as server:
        agent = await server.create_agent()
        await server.say(agent, "Hello.")
        url = f"/v1/agents/{agent}/messages/delete"
        refused = await server.http.post(url, json={"positions": [1000, 1009]})
        no_turn = await server.http.post(url, json={"positions": [1000], "turns": [7]})
        nothing = await server.http.post(url, json={})
        assert await positions(server, agent) == [1000, 1001]
    assert (refused.status_code, no_turn.status_code, nothing.status_code) == (404, 404, 422)
    assert refused.json()["error"]["message"] == "The agent has no message 1009."
    assert "Nothing was deleted." in refused.json()["error"]["hint"]


async def test_a_redacted_message_leaves_a_placeholder_that_is_read_but_not_found(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(searches)
    async with serving(database, model) as server:
        agent = await server.create_agent()
        await server.say(agent, f"My password is {WORD}.")
        await server.run_jobs()
        before = await positions(server, agent)
        done = await delete(server, f"{agent}/turns/1", redact=True)
        assert done["messages"] == len(before)
        assert holding(database) == []
        assert await positions(server, agent) == before
        await server.run_jobs()
        everything = await server.get(f"{agent}/recall/search", mode="exact")
        found = await server.get(f"{agent}/recall/search", query="deleted")
        assert everything["items"] == found["items"] == []
        assert (await server.get(agent))["message_count"] == len(before)
        await server.say(agent, "Hello.")
    assert of_prompt(model.last_prompt).count(PLACEHOLDER) == len(before)


async def test_a_summary_that_had_taken_a_message_up_is_written_again_without_it(
    database: OneDatabase,
) -> None:
    def summary(prompt: Sequence[PromptMessage]) -> str:
        return f"They talked of {WORD}." if WORD in of_prompt(prompt) else "They talked of days."

    model = ScriptedModel(chat, context_window=WINDOW, summary=summary)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await server.say(agent, f"My password is {WORD}.")
        await talk_until_queued(server, agent)
        await server.run_jobs()
        assert server.rows(SUMMARY) == [(f"They talked of {WORD}.", False)]

        assert (await delete(server, f"{agent}/messages/1000"))["rewrites_summary"]
        assert holding(database) == []
        assert server.rows(SUMMARY) == [(NOTE, True)]
        context = await server.get(f"{agent}/context")
        assert NOTE in str(context["parts"])
        assert "being written again" in context["summary_failure"]
        await server.run_jobs()
        assert server.rows(SUMMARY) == [(f"They talked of days.\n\n{NOTE}", False)]
        assert "past0 word" in of_prompt(model.writes[-1])
        later = await server.get(f"{agent}/context")
        assert later["queue"] == context["queue"]
        assert later["summary_failure"] is None
    assert holding(database) == []


async def test_an_older_summary_that_did_not_have_it_is_what_a_new_one_begins_with(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        chat, context_window=WINDOW, summary=lambda _: f"Notes {len(model.writes)}."
    )
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        for _ in range(2):
            await talk_until_queued(server, agent)
            await server.run_jobs()
        [(first, _), (second, _)] = server.rows("SELECT until, text FROM summaries ORDER BY until")
        [(between,)] = server.rows("SELECT min(position) FROM messages WHERE position > %s", first)
        await delete(server, f"{agent}/messages/{between}")
        assert server.rows(SUMMARY) == [("Notes 1.", False), (f"Notes 1.\n\n{NOTE}", True)]
        await server.run_jobs()
        rows = server.rows("SELECT until, text FROM summaries ORDER BY until")
    assert rows == [(first, "Notes 1."), (second, f"Notes 3.\n\n{NOTE}")]
    assert "Notes 1." in of_prompt(model.writes[-1])


async def test_a_compaction_that_has_read_it_does_not_bring_it_back(database: OneDatabase) -> None:
    model = Writer(chat, context_window=WINDOW, summary=lambda prompt: of_prompt(prompt))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await server.say(agent, f"My password is {WORD}.")
        await talk_until_queued(server, agent)
        job = asyncio.create_task(server.run_jobs())
        await model.asked.wait()
        await delete(server, f"{agent}/turns/1")
        model.go_on.set()
        await job
        assert server.rows(SUMMARY) == []
        assert holding(database) == []
        await server.say(agent, "Hello.")
        await server.run_jobs()
        assert len(server.rows(SUMMARY)) == 1
    assert holding(database) == []


async def test_a_deletion_while_a_summary_is_written_again_has_it_written_once_more(
    database: OneDatabase,
) -> None:
    model = Writer(chat, context_window=WINDOW, summary=lambda prompt: of_prompt(prompt)[-1000:])
    model.go_on.set()
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        await server.say(agent, "The first one.")
        await server.say(agent, f"My password is {WORD}.")
        await talk_until_queued(server, agent)
        await server.run_jobs()
        await delete(server, f"{agent}/turns/1")
        model.go_on.clear()
        model.asked.clear()
        model.writes.clear()
        job = asyncio.create_task(server.run_jobs())
        await model.asked.wait()
        await delete(server, f"{agent}/turns/2")
        model.go_on.set()
        await job
        assert [outdated for _, outdated in server.rows(SUMMARY)] == [False]
    assert holding(database) == []


async def test_an_indexing_that_has_read_it_stores_no_vector_and_no_word_of_it(
    database: OneDatabase,
) -> None:
    embedder = Pausing()
    async with serving(database, ScriptedModel(chat), embedder=embedder) as server:
        agent = await server.create_agent()
        await server.say(agent, f"My password is {WORD}.")
        await server.say(agent, "Hello.")
        job = asyncio.create_task(server.run_jobs())
        await embedder.reached.wait()
        await delete(server, f"{agent}/turns/1", redact=True)
        embedder.release.set()
        await job
        [(table, messages)] = server.rows("SELECT table_name, messages FROM recall_embeddings")
        assert server.rows(f"SELECT DISTINCT position FROM {table} ORDER BY 1") == [
            (2000,),
            (2001,),
        ]
    assert messages == 2
    assert holding(database) == []


async def test_beside_a_running_turn_others_can_be_deleted_and_its_next_step_does_not_see_them(
    database: OneDatabase,
) -> None:
    held = Held(
        Call(
            "working_context_append",
            {"section": "human", "content": "x", "request_heartbeat": True},
        ),
        asyncio.Event(),
    )
    model = ScriptedModel([say("Noted."), held, say("Done.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        await server.say(agent, f"My password is {WORD}.")
        turn = asyncio.create_task(server.say(agent, "Note this."))
        await held.reached.wait()
        running = await server.http.delete(f"/v1/agents/{agent}/messages/2000")
        whole = await server.http.delete(f"/v1/agents/{agent}/turns/2")
        await delete(server, f"{agent}/turns/1")
        held.release.set()
        answer = await turn
        assert await positions(server, agent) == [2000, 2001, 2002]
    assert {running.status_code, whole.status_code} == {409}
    assert "has not ended" in running.json()["error"]["message"]
    assert answer["text"] == "Done."
    assert WORD in of_prompt(model.seen[1].prompt)
    assert WORD not in of_prompt(model.last_prompt)
    assert holding(database) == []


@pytest.mark.parametrize("form", ["calls", "compact"])
async def test_the_last_message_can_be_said_otherwise_and_answered_again(
    database: OneDatabase, form: str
) -> None:
    held = Held(say("In Italy."), asyncio.Event())
    model = ScriptedModel([say("Hello Ada."), say("In the south."), held, say("In the north.")])
    async with serving(database, model) as server:
        agent = await server.create_agent(options={"history": form})
        await server.say(agent, "I am Ada.")
        first = await server.say(agent, "Where is Graz?")
        await delete(server, f"{agent}/turns/{first['turn']}")
        asking = asyncio.create_task(server.say(agent, "Where is Rome?"))
        await held.reached.wait()
        turn = first["turn"] + 1
        cancelled = await server.http.post(f"/v1/agents/{agent}/turns/{turn}/cancel")
        assert cancelled.status_code == 200
        await asking
        await delete(server, f"{agent}/turns/{turn}")
        second = await server.say(agent, "Where is Hamburg?")
        texts = [
            each["text"] for each in (await server.get(f"{agent}/messages", order="asc"))["items"]
        ]
    assert texts == ["I am Ada.", "Hello Ada.", "Where is Hamburg?", "In the north."]
    assert second["turn"] == first["turn"] + 2
    assert not {"Graz", "Rome"} & set(of_prompt(model.last_prompt).replace("?", " ").split())


@pytest.mark.parametrize("number", [10**15, 2**61, 2**70])
async def test_numbers_that_no_message_can_have_are_refused_or_not_found(
    database: OneDatabase, number: int
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        for path in (f"turns/{number}", f"messages/{number}"):
            answer = await server.http.delete(f"/v1/agents/{agent}/{path}")
            assert answer.status_code in (404, 422), answer.text
        for body in ({"turns": [number]}, {"positions": [number]}):
            answer = await server.http.post(f"/v1/agents/{agent}/messages/delete", json=body)
            assert answer.status_code in (404, 422), answer.text
        for path, sent in (("fork", {"position": number}), (f"turns/{number}/cancel", {})):
            answer = await server.http.post(f"/v1/agents/{agent}/{path}", json=sent)
            assert answer.status_code in (404, 422), answer.text
