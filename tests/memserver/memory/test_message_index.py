"""What was said is indexed in the background, each message once, and found by its words and by its meaning."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.memory import message_index
from memserver.memory.message_index import MOST_PARTS, PART_BYTES, MessageIndexing, parts_of
from memserver.storage import message_vectors
from memserver.storage.jobs import JobRun
from memserver.storage.nearest_messages import nearest
from memserver.storage.recall import RecallQuery
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.memserver.memory.histories import remember
from tests.support.server import OneDatabase, Server, serving


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
    return await server.get(f"{agent}/recall/search", query=meaning, mode="meaning", **query)


def vectors(server: Server) -> list[tuple[int, int]]:
    [(table,)] = server.rows("SELECT DISTINCT table_name FROM recall_embeddings")
    return server.rows(f"SELECT position / 1000, part FROM {table} ORDER BY 1, 2")


async def test_what_was_said_is_found_by_meaning_once_its_turn_has_ended(
    database: OneDatabase,
) -> None:
    script = [say("What is it called?"), say("Nice!")]
    async with serving(database, ScriptedModel(script)) as server:
        agent = await server.create_agent()
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


async def test_a_search_by_the_agents_tool_has_what_is_not_embedded_embedded_soon(
    database: OneDatabase,
) -> None:
    urgent = "SELECT waiting AND urgent FROM recall_index WHERE agent_id = %s"
    again = {"request_heartbeat": True}
    script = [say("Hm."), Call("recall_memory_search", {"query": "cello", **again}), say("Yes.")]
    async with serving(database, ScriptedModel(script)) as server:
        agent = await server.create_agent()
        await server.say(agent, "I play the cello.")
        before = server.rows(urgent, agent)
        await server.say(agent, "Do you remember?")
        after = server.rows(urgent, agent)
    assert (before, after) == ([(False,)], [(True,)])


async def test_where_messages_are_not_embedded_words_are_found_and_meaning_is_refused(
    database: OneDatabase,
) -> None:
    embedder = Recorder()
    async with serving(
        database, ScriptedModel(), embedder=embedder, embed_messages=False
    ) as server:
        agent = await server.create_agent()
        remember(server, agent, ["I play the cello.", "I bake bread."])
        await server.run_jobs()
        refused = await server.http.get(
            f"/v1/agents/{agent}/recall/search", params={"query": "cello", "mode": "meaning"}
        )
        found = await server.get(f"{agent}/recall/search", query="who bakes bread?")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
    assert "MEMSERVER_EMBED_MESSAGES" in refused.json()["error"]["hint"]
    assert [(item["text"], item["found_by"]) for item in found["items"]] == [
        ("I bake bread.", ["words"])
    ]
    assert embedder.texts == []


async def test_a_failure_half_way_loses_nothing_and_repeats_nothing(database: OneDatabase) -> None:
    history = [f"message {number}" for number in range(200)]
    embedder = Recorder(fail_at="message 130")
    async with serving(database, ScriptedModel(), embedder=embedder) as server:
        agent = await server.create_agent()
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
        agent = await server.create_agent()
        remember(server, agent, [f"message {number}" for number in range(100)])
        job = JobRun("default", {}, 1, last=False)
        handler = MessageIndexing(server.services.database, server.services.archival)
        await asyncio.gather(*(handler.run(job) for _ in range(4)))
        await handler.run(job)
        stored = vectors(server)
        counted = server.rows("SELECT messages, embedded_to FROM recall_embeddings")
    assert stored == [(number, 0) for number in range(1, 101)]
    assert counted == [(100, 101_000)]


async def test_many_messages_are_embedded_by_several_jobs(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_index, "BATCH", 2)
    monkeypatch.setattr(message_index, "BATCHES_OF_A_JOB", 3)
    monkeypatch.setattr(message_index, "WORDS_AT_ONCE", 3)
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"message {number}" for number in range(25)])
        await server.run_jobs()
        found = await by_meaning(server, agent, "message")
    assert found["coverage"] == {"embedded": 25, "messages": 25, "complete": True}


async def test_another_embedding_model_embeds_again_and_then_the_old_vectors_go(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
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


async def test_an_import_is_indexed_by_reading_each_message_a_few_times(
    database: OneDatabase,
) -> None:
    read = """SELECT coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0)
              FROM pg_stat_user_tables WHERE relname = 'messages'"""
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"message {number}" for number in range(2_000)], analyze=False)
        await server.run_jobs()
        assert server.rows("SELECT messages, waiting FROM recall_index") == [(2_000, False)]
    with psycopg.connect(database.superuser) as connection:
        [(rows,)] = connection.execute(read).fetchall()
    assert 2_000 < rows < 7 * 2_000


def index_size(server: Server) -> int:
    [(size,)] = server.rows(
        """SELECT sum(pg_relation_size(c.oid)) FROM pg_class c
           WHERE c.relkind = 'i' AND c.relname LIKE 'message\\_vectors\\_%%embedding_idx'"""
    )
    return int(size)


async def test_vectors_of_an_agent_are_indexed_when_it_has_many(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_vectors, "LARGE", 300)
    async with serving(database, ScriptedModel(), embedder=HashingEmbedder(384)) as server:
        agent, other = await server.create_agent(), await server.create_agent()
        sizes = []
        for who, first, last in (
            (other, 1, 1),
            (other, 2, 250),
            (agent, 1, 600),
            (agent, 601, 900),
        ):
            remember(server, who, [f"message {n}" for n in range(first, last + 1)], first=first)
            await server.run_jobs()
            sizes.append(index_size(server))
    assert sizes[0] == sizes[1] < sizes[2] < sizes[3]


async def test_all_is_found_at_every_moment_while_an_agent_becomes_large(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_index, "BATCH", 10)
    monkeypatch.setattr(message_index, "LARGE_AT_ONCE", 7)
    monkeypatch.setattr(message_index, "BATCHES_OF_A_JOB", 1)
    monkeypatch.setattr(message_vectors, "LARGE", 40)
    found, indexed = [], set()
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"message {number} of them" for number in range(90)])
        handler = MessageIndexing(server.services.database, server.services.archival)
        while server.rows("SELECT 1 FROM recall_index WHERE waiting"):
            await handler.run(JobRun("default", {}, 1, last=False))
            page = await by_meaning(server, agent, "message", limit=100)
            found.append((len(page["items"]), page["coverage"]["embedded"]))
            indexed |= set(server.rows("SELECT large_to = embedded_to FROM recall_embeddings"))
    assert all(items == embedded for items, embedded in found)
    assert found[-1] == (90, 90)
    assert indexed == {(False,), (True,)}


@pytest.mark.parametrize("exact_up_to", [10_000, 10])
async def test_meaning_goes_with_dates_and_roles(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch, exact_up_to: int
) -> None:
    monkeypatch.setattr(message_vectors, "LARGE", exact_up_to)
    history = [f"{'tea' if n % 2 else 'milk'} in room {n % 10} on day {n}" for n in range(60)]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, history)
        await server.run_jobs()

        async def found(**query: Any) -> set[str]:
            result = await by_meaning(server, agent, "room 3 day 33", **query)
            return {item["text"] for item in result["items"]}

        assert history[33] in await found(limit=1)
        early = await found(end_date="2026-01-01T00:05", limit=100)
        users = await by_meaning(server, agent, "room 3 day 33", role="user", limit=100)
        pages = [await by_meaning(server, agent, "room 3", page=n) for n in (1, 2, 6, 7, 0, -1)]
    assert early == set(history[:5])
    assert {item["role"] for item in users["items"]} == {"user"}
    assert len(users["items"]) == 30
    assert [len(page["items"]) for page in pages] == [10, 10, 10, 0, 0, 0]
    assert {page["total"] for page in pages} == {60}
    texts = [item["text"] for page in pages for item in page["items"]]
    assert len(set(texts)) == 30
    scores = [item["score"] for page in pages[:3] for item in page["items"]]
    assert scores == sorted(scores, reverse=True)


async def test_each_search_by_meaning_is_planned_for_its_own_dates_and_roles(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_vectors, "LARGE", 10)
    queries = [
        RecallQuery(),
        RecallQuery(roles=("user",)),
        RecallQuery(until=datetime(2026, 1, 1, 0, 5, tzinfo=UTC)),
    ]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"message {number}" for number in range(60)])
        await server.run_jobs()
        embedder = HashingEmbedder()
        vector = await embedder.embed_query("message")
        async with server.services.database.tenant("default") as tx:
            state = await message_vectors.find_embedded(
                tx, UUID(agent), embedder.model, len(vector)
            )
            assert state is not None
            found = [len(await nearest(tx, state, vector, each, 100)) for each in queries * 8]
            rows = await (
                await tx.execute("SELECT statement FROM pg_prepared_statements")
            ).fetchall()
    assert found == [60, 30, 4] * 8
    assert [row["statement"] for row in rows if "<=>" in row["statement"]] == []


async def test_the_end_of_a_long_message_is_found(database: OneDatabase) -> None:
    long = "small talk about the weather " * 200 + "and the cello is called Hugo"
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, ["I bake bread.", long, "the weather is fine"])
        await server.run_jobs()
        found = await by_meaning(server, agent, "Hugo the cello")
        stored = vectors(server)
    assert found["items"][0]["text"] == long
    assert [item["position"] for item in found["items"]].count(2000) == 1
    assert len(stored) > 8
    assert found["total"] == 3


@pytest.mark.parametrize(
    "text", ["", " \n", "word", "x" * 3000, "日本語" * 999, " two words " * 200, "é" * 350 + " "]
)
def test_parts_hold_the_whole_text(text: str) -> None:
    parts = [text[part] for part in parts_of(text)]
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part.encode()) <= PART_BYTES and part == part.strip() for part in parts)


def test_of_a_text_without_end_the_beginning_is_embedded() -> None:
    assert len(list(parts_of("word " * 300_000))) == MOST_PARTS


async def test_deleting_the_agent_deletes_its_index(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, ["I play the cello."])
        await server.run_jobs()
        [(table,)] = server.rows("SELECT table_name FROM recall_embeddings")
        gone = await server.http.delete(f"/v1/agents/{agent}")
        left = server.rows(
            f"""SELECT 1 FROM {table} UNION ALL SELECT 1 FROM recall_embeddings
                UNION ALL SELECT 1 FROM recall_index UNION ALL SELECT 1 FROM recall_blocks
                UNION ALL SELECT 1 FROM message_words UNION ALL SELECT 1 FROM message_word_shares"""
        )
        await server.run_jobs()
    assert gone.status_code == 204
    assert left == []
