"""Recall storage by meaning: embedded in the background, each message once, and found whatever the words."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.memory import recall_meaning
from memserver.memory.recall_meaning import PART_BYTES, parts_of
from memserver.storage import recall_nearest
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.memserver.memory.histories import remember
from tests.support.server import OneDatabase, Server, serving

ON = {"embed_recall": True}


class Recorder(HashingEmbedder):
    """Notes what it embeds; fails from the text on that `fail_at` names."""

    def __init__(self, fail_at: str | None = None, *, model: str = "hashing") -> None:
        super().__init__(model=model)
        self.fail_at = fail_at
        self.texts: list[str] = []

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if self.fail_at in texts:
            raise EmbeddingError("The embedder is away.")
        self.texts += texts
        return await super().embed(texts)


async def by_meaning(server: Server, agent: str, meaning: str, **query: Any) -> dict[str, Any]:
    return await server.get(f"{agent}/recall/search", meaning=meaning, **query)


def vectors(server: Server) -> list[tuple[int, int]]:
    [(table,)] = server.rows("SELECT DISTINCT table_name FROM recall_embeddings")
    return server.rows(f"SELECT position / 1000, part FROM {table} ORDER BY 1, 2")


async def test_what_was_said_is_found_by_meaning_once_its_turn_has_ended(
    database: OneDatabase,
) -> None:
    script = [say("What is it called?"), say("Nice!")]
    async with serving(database, ScriptedModel(script)) as server:
        agent = await server.create_agent(options=ON)
        await server.say(agent, "I play the cello on Sundays.")
        before = await by_meaning(server, agent, "the cello")
        await server.run_jobs()
        await server.say(agent, "Hugo, after my uncle.")
        found = await by_meaning(server, agent, "who plays the cello")
        await server.run_jobs()
        later = await by_meaning(server, agent, "who plays the cello")
    assert (before["items"], before["total"]) == ([], 0)
    assert before["coverage"] == {"embedded": 0, "messages": 2, "complete": False}
    assert found["items"][0]["text"] == "I play the cello on Sundays."
    assert found["items"][0]["score"] > found["items"][1]["score"]
    assert found["coverage"] == {"embedded": 2, "messages": 4, "complete": False}
    assert later["coverage"] == {"embedded": 4, "messages": 4, "complete": True}
    assert (later["total"], later["next"]) == (4, None)


async def test_it_is_off_until_the_agent_asks_for_it_and_then_reaches_back(
    database: OneDatabase,
) -> None:
    embedder = Recorder()
    async with serving(database, ScriptedModel(), embedder=embedder) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"message {number}" for number in range(150)])
        await server.run_jobs()
        refused = await server.http.get(
            f"/v1/agents/{agent}/recall/search", params={"meaning": "message"}
        )
        embedder.texts.clear()
        await server.http.patch(f"/v1/agents/{agent}", json={"options": ON})
        await server.run_jobs()
        found = await by_meaning(server, agent, "message 7")
        stored = vectors(server)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
    assert "embed_recall" in refused.json()["error"]["hint"]
    assert embedder.texts[:-1] == [f"message {number}" for number in range(150)]
    assert stored == [(number, 0) for number in range(1, 151)]
    assert (found["items"][0]["text"], found["total"]) == ("message 7", 150)


async def test_a_failure_half_way_loses_nothing_and_repeats_nothing(database: OneDatabase) -> None:
    history = [f"message {number}" for number in range(200)]
    embedder = Recorder(fail_at="message 130")
    async with serving(database, ScriptedModel(), embedder=embedder) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, history)
        await server.run_jobs()
        half = await by_meaning(server, agent, "message 3")
        embedder.fail_at = None
        await server.run_jobs()
        stored = vectors(server)
        whole = await by_meaning(server, agent, "message 3")
    assert half["coverage"] == {"embedded": 128, "messages": 200, "complete": False}
    assert whole["coverage"] == {"embedded": 200, "messages": 200, "complete": True}
    assert stored == [(number, 0) for number in range(1, 201)]
    assert sorted(set(embedder.texts) & set(history)) == sorted(history)
    assert embedder.texts.count("message 5") == 1


async def test_two_that_embed_the_same_messages_store_them_once(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, [f"message {number}" for number in range(100)])
        job = recall_meaning.JobRun("default", {"agent": agent}, 1, last=False)
        handler = recall_meaning.RecallEmbedding(server.services.database, server.services.archival)
        await asyncio.gather(*(handler.run(job) for _ in range(4)))
        await handler.run(job)
        stored = vectors(server)
        counted = server.rows("SELECT messages, embedded_to FROM recall_embeddings")
    assert stored == [(number, 0) for number in range(1, 101)]
    assert counted == [(100, 101_000)]


async def test_many_messages_are_embedded_by_several_jobs(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_meaning, "BATCH", 2)
    monkeypatch.setattr(recall_meaning, "BATCHES_OF_A_JOB", 3)
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, [f"message {number}" for number in range(25)])
        await server.run_jobs()
        found = await by_meaning(server, agent, "message")
    assert found["coverage"] == {"embedded": 25, "messages": 25, "complete": True}


async def test_another_embedding_model_embeds_anew_and_then_the_old_vectors_go(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, ["I play the cello.", "I bake bread."])
        await server.run_jobs()
    async with serving(
        database, ScriptedModel(), embedder=HashingEmbedder(64, model="new")
    ) as server:
        first = await by_meaning(server, agent, "bread")
        kept = server.rows("SELECT model, messages FROM recall_embeddings ORDER BY model")
        await server.run_jobs()
        then = await by_meaning(server, agent, "bread")
        left = server.rows("SELECT model, messages FROM recall_embeddings")
        rows = [
            server.rows(f"SELECT count(*) FROM {table}")[0][0]
            for (table,) in server.rows(
                """SELECT relname FROM pg_class WHERE relkind = 'p'
                   AND starts_with(relname, 'message_vectors_')"""
            )
        ]
    assert (first["items"], first["coverage"]["complete"]) == ([], False)
    assert kept == [("hashing", 2)]
    assert then["items"][0]["text"] == "I bake bread."
    assert left == [("new", 2)]
    assert sorted(rows) == [0, 2]


@pytest.mark.parametrize(("exact_up_to", "few"), [(10_000, 2_000), (10, 2), (100, 2)])
async def test_meaning_goes_with_words_dates_and_roles(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch, exact_up_to: int, few: int
) -> None:
    monkeypatch.setattr(recall_nearest, "EXACT_UP_TO", exact_up_to)
    monkeypatch.setattr(recall_nearest, "FEW", few)
    history = [f"{'tea' if n % 2 else 'milk'} in room {n % 10} on day {n}" for n in range(60)]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, history)
        await server.run_jobs()

        async def found(**query: Any) -> set[str]:
            result = await by_meaning(server, agent, "room 3 day 33", **query)
            return {item["text"] for item in result["items"]}

        assert history[33] in await found(limit=1)
        assert await found(query="day 3", limit=20) == {history[3], *history[30:40]}
        only_milk = await by_meaning(server, agent, "tea in room 3", query="MILK", ignore_case=True)
        early = await found(end_date="2026-01-01T00:05", limit=100)
        users = await by_meaning(server, agent, "room 3 day 33", role="user", limit=100)
        pages = [await by_meaning(server, agent, "room 3", page=n) for n in (1, 2, 6, 7, 0, -1)]
    assert len(only_milk["items"]) == 10
    assert {item["text"][:4] for item in only_milk["items"]} == {"milk"}
    assert early == set(history[:5])
    assert {item["role"] for item in users["items"]} == {"user"}
    assert len(users["items"]) == 30
    assert [len(page["items"]) for page in pages] == [10, 10, 10, 0, 0, 0]
    assert {page["total"] for page in pages} == {60}
    texts = [item["text"] for page in pages for item in page["items"]]
    assert len(set(texts)) == 30
    scores = [item["score"] for page in pages[:3] for item in page["items"]]
    assert scores == sorted(scores, reverse=True)


async def test_the_end_of_a_long_message_is_found(database: OneDatabase) -> None:
    long = "small talk about the weather " * 200 + "and the cello is called Hugo"
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, ["I bake bread.", long, "the weather is fine"])
        await server.run_jobs()
        found = await by_meaning(server, agent, "Hugo the cello")
        stored = vectors(server)
    assert found["items"][0]["text"] == long
    assert [item["position"] for item in found["items"]].count(2000) == 1
    assert len(stored) > 8
    assert found["total"] == 3


@pytest.mark.parametrize(
    "text", ["", " \n", "word", "x" * 3000, "日本語" * 999, "two words " * 200]
)
def test_parts_hold_the_whole_text(text: str) -> None:
    parts = list(parts_of(text))
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part.encode()) <= PART_BYTES for part in parts)


async def test_an_agent_whose_recall_is_embedded_has_a_tool_for_it(database: OneDatabase) -> None:
    search = Call("recall_memory_search_meaning", {"query": "cello", "request_heartbeat": True})
    model = ScriptedModel([say("Noted."), search, say("You play the cello."), say("Hi.")])
    async with serving(database, model) as server:
        agent = await server.create_agent(options=ON)
        other = await server.create_agent()
        await server.say(agent, "I play the cello.")
        early = await server.get(f"{agent}/context")
        await server.run_jobs()
        answer = await server.say(agent, "What do I play?")
        offered = {spec.name for spec in model.seen[-1].tools}
        await server.say(other, "Hello!")
        not_offered = {spec.name for spec in model.seen[-1].tools}
    [result] = [
        message["tool_call"]["result"]
        for message in answer["messages"]
        if message["tool_call"] and message["tool_call"]["name"] == search.name
    ]
    assert result.startswith("Showing 2 of 2 results (page 1/1):\n")
    assert "user: I play the cello." in result
    assert "recall_memory_search_meaning" in offered
    assert "recall_memory_search_meaning" not in not_offered
    tools = next(part for part in early["parts"] if part["name"] == "tools")
    assert tools["tokens"] > 0


async def test_deleting_the_agent_deletes_its_vectors(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=ON)
        remember(server, agent, ["I play the cello."])
        await server.run_jobs()
        [(table,)] = server.rows("SELECT table_name FROM recall_embeddings")
        gone = await server.http.delete(f"/v1/agents/{agent}")
        left = server.rows(f"SELECT 1 FROM {table} UNION ALL SELECT 1 FROM recall_embeddings")
        await server.run_jobs()
    assert gone.status_code == 204
    assert left == []
