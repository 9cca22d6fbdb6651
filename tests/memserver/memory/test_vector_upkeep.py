"""Collections that grow get a table and an index of their own; re-embedding continues beside what serves."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import psycopg
import pytest
from pgvector import HalfVector

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.memory.archival import ArchivalQuery, ArchivalStorage
from memserver.memory.paging import ResultPage
from memserver.memory.vector_upkeep import VectorUpkeep
from memserver.messages import PassageHit
from memserver.storage import collections, passage_search, passages, vector_builds
from memserver.storage.collections import CollectionRow, NewCollection
from memserver.storage.database import Database, LazyTransaction, TenantScope, Transaction
from memserver.storage.passage_search import PassageConditions
from memserver.storage.passages import NewPassage, PassageChange
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.wire.archival import SearchMode
from tests.support.server import OneDatabase

TENANT = "mine"
WORDS = [f"word{number}" for number in range(300)]
OLD = HashingEmbedder(64, model="old")
NEW = HashingEmbedder(96, model="new")


class Both:
    """Both models' embedders."""

    def get(self, model: str, dimension: int = 0) -> HashingEmbedder:
        return {"old": OLD, "new": NEW}[model]


class Archive:
    """One collection, and what a test does with it."""

    def __init__(self, database: Database, collection: UUID) -> None:
        self.database = database
        self.collection = collection
        self.archival = ArchivalStorage(OLD, Both())
        self.upkeep = VectorUpkeep(database, self.archival.embedder_of)

    async def insert(self, texts: Sequence[str], **fields: object) -> list[str]:
        async def place(tx: Transaction) -> CollectionRow:
            return await collections.get(tx, self.collection)

        new = [NewPassage(text, **fields) for text in texts]  # type: ignore[arg-type]
        async with LazyTransaction(self.database, TENANT) as transaction:
            stored = await self.archival.insert(transaction, place, new)
        return [passage.id for passage in stored]

    async def search(
        self,
        text: str,
        *,
        mode: SearchMode = "vector",
        wanted: PassageConditions = passage_search.EVERYTHING,
        page: int = 1,
    ) -> list[PassageHit]:
        async def searched(tx: Transaction) -> list[CollectionRow]:
            return [await collections.get(tx, self.collection)]

        query = ArchivalQuery(text, wanted, mode)
        scope = TenantScope(self.database, TENANT)
        found = await self.archival.search(scope, searched, query, ResultPage(page))
        return list(found.found)

    async def update(self, passage: str, text: str) -> None:
        async with LazyTransaction(self.database, TENANT) as transaction:
            change = PassageChange(text=text)
            await self.archival.update(transaction, self.collection, UUID(passage), change)

    async def delete(self, passage: str) -> None:
        async with self.database.tenant(TENANT) as tx:
            await passages.delete(tx, self.collection, UUID(passage))

    async def stored(self) -> CollectionRow:
        async with self.database.tenant(TENANT) as tx:
            return await collections.get(tx, self.collection)

    async def finish(self) -> None:
        while await self.upkeep.step(TENANT, self.collection):
            pass

    async def build(self) -> vector_builds.Build | None:
        async with self.database.tenant(TENANT) as tx:
            return await vector_builds.find(tx, self.collection)

    async def exact(self, vector: Vector, at_most: int = 10) -> list[float]:
        """The similarities of the nearest, each vector compared: passages can be equally near."""
        stored = await self.stored()
        async with self.database.tenant(TENANT) as tx:
            cursor = await tx.execute(
                "SELECT 1 - distance AS score FROM nearest_one_by_one(%s, %s, %b, '{}', %s)",
                [
                    stored.vectors_table,
                    [self.collection],
                    HalfVector(list(vector)),
                    at_most,
                ],
            )
            return [row["score"] for row in await cursor.fetchall()]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection is large from 61 passages on, and steps are small."""
    monkeypatch.setattr("memserver.storage.passages.MOST_TOGETHER", 60)
    monkeypatch.setattr("memserver.memory.vector_upkeep.EMBEDDED_AT_ONCE", 16)
    monkeypatch.setattr("memserver.memory.vector_upkeep.COPIED_AT_ONCE", 32)
    monkeypatch.setattr("memserver.storage.vector_builds.LEAST_COUNTED", 3)


@asynccontextmanager
async def archive(database: OneDatabase) -> AsyncIterator[Archive]:
    opened = Database(database.app, pool_size=4)
    await opened.open()
    try:
        async with opened.tenant(TENANT) as tx:
            new = NewCollection("c", OLD.model, OLD.dimension, language="simple")
            made = await collections.create(tx, TENANT, new)
        yield Archive(opened, made.id)
    finally:
        await opened.close()


def sentences(count: int, seed: int = 0) -> list[str]:
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(WORDS, k=8)) for _ in range(count)]


def superuser_rows(database: OneDatabase, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database.superuser) as connection:
        return connection.execute(query.encode()).fetchall()


async def test_a_collection_that_grows_gets_an_index_by_a_job_that_its_insertion_queues(
    database: OneDatabase,
) -> None:
    async with archive(database) as made:
        await made.insert(sentences(60))
        none_yet = superuser_rows(database, "SELECT task_name FROM procrastinate_jobs")
        await made.insert(sentences(90, seed=1))
        queued = superuser_rows(database, "SELECT task_name FROM procrastinate_jobs")
        before = await made.stored()
        [vector] = await OLD.embed(["word1 word2 word3"])
        expected = await made.exact(vector)
        await made.upkeep.begin(TENANT, made.collection, OLD)
        await made.finish()
        after = await made.stored()
        found = await made.search("word1 word2 word3")
        table = after.vectors_table
        methods = superuser_rows(
            database, f"SELECT indexdef FROM pg_indexes WHERE tablename = '{table}'"
        )
        words = superuser_rows(database, "SELECT count(*) FROM collection_words")
    assert none_yet == []
    assert queued == [("collection_upkeep",)]
    assert (before.has_own_table, after.has_own_table) == (False, True)
    assert any("USING hnsw" in str(index) for (index,) in methods)
    assert after.words_counted == 150
    assert words != [(0,)]
    assert [hit.score for hit in found] == expected


async def test_deletes_changes_and_insertions_keep_a_large_collection_exact(
    database: OneDatabase,
) -> None:
    async with archive(database) as made:
        ids = await made.insert(sentences(200))
        await made.upkeep.begin(TENANT, made.collection, OLD)
        await made.finish()
        for passage in ids[:80]:
            await made.delete(passage)
        for passage, text in zip(ids[80:120], sentences(40, seed=2), strict=True):
            await made.update(passage, text)
        await made.insert(sentences(80, seed=3))
        count = (await made.stored()).passage_count
        for query in sentences(20, seed=4):
            [vector] = await OLD.embed([query])
            expected = await made.exact(vector)
            found = await made.search(query)
            assert not {hit.passage.id for hit in found} & set(ids[:80])
            assert [hit.score for hit in found] == expected
        [(vectors,)] = superuser_rows(
            database, f"SELECT count(*) FROM {(await made.stored()).vectors_table}"
        )
    assert (count, vectors) == (200, 200)


@pytest.mark.parametrize("few_are", [0, 1000])
async def test_a_filter_loses_nothing_in_a_large_collection(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch, few_are: int
) -> None:
    """Whether the filter goes first, or the index is walked with it and may find too little."""
    monkeypatch.setattr("memserver.storage.passage_search.FEW", few_are)
    async with archive(database) as made:
        await made.insert(sentences(200))
        few = sentences(12, seed=1)
        rare = await made.insert(few, tags=["rare"], metadata={"n": 1})
        await made.upkeep.begin(TENANT, made.collection, OLD)
        await made.finish()
        by_tag = PassageConditions(all_tags=["rare"])
        tagged = [await made.search("word1", wanted=by_tag, page=page) for page in (1, 2)]
        by_metadata = await made.search("word1", wanted=PassageConditions(metadata={"n": 1}))
        nothing = await made.search("word1", wanted=PassageConditions(any_tags=["none"]))
        asked = " ".join(text.split()[0] for text in few)
        words = await made.search(asked, mode="text", wanted=PassageConditions(any_tags=["rare"]))
    assert {hit.passage.id for page in tagged for hit in page} == set(rare)
    assert len(by_metadata) == 10
    assert nothing == []
    assert {hit.passage.id for hit in words} <= set(rare)
    assert len(words) == 10


async def test_common_words_alone_still_find_passages_in_a_large_collection(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memserver.storage.passage_search.MOST_CANDIDATES", 20)
    async with archive(database) as made:
        await made.insert([f"the bus number {number}" for number in range(90)])
        [rare] = await made.insert(["the bus to Zanzibar"])
        await made.upkeep.begin(TENANT, made.collection, OLD)
        await made.finish()
        common = await made.search("the bus", mode="text")
        mixed = await made.search("the bus to Zanzibar", mode="text")
    assert len(common) == 10
    assert mixed[0].passage.id == rare


async def test_the_old_vectors_serve_until_the_new_ones_are_complete(
    database: OneDatabase,
) -> None:
    async with archive(database) as made:
        ids = await made.insert(sentences(100))
        await made.upkeep.begin(TENANT, made.collection, NEW)
        states = []
        while stands := await made.upkeep.step(TENANT, made.collection):
            states.append((stands.state, stands.stored))
            stored = await made.stored()
            if await made.build() is not None:
                assert stored.embedding_model == "old"
            assert len(await made.search("word1 word2")) == 10
            await made.delete(ids.pop())
            await made.update(ids[len(states)], f"changed {len(states)}")
            await made.insert([f"came in {len(states)}"])
        switched = await made.stored()
        [changed] = (await made.search("changed 3"))[:1]
        [newcomer] = (await made.search("came in 5"))[:1]
        [(vectors,)] = superuser_rows(database, f"SELECT count(*) FROM {switched.vectors_table}")
        [(known,)] = superuser_rows(
            database,
            f"""SELECT count(*) FROM passages p JOIN {switched.vectors_table} v
                ON v.collection_id = p.collection_id AND v.passage_id = p.id""",
        )
    assert [state for state, _ in dict.fromkeys((s, 0) for s, _ in states)] == [
        "filling",
        "indexing",
        "catching_up",
    ]
    assert (switched.embedding_model, switched.dimension) == ("new", 96)
    assert switched.passage_count == 100 == vectors == known
    assert changed.passage.text == "changed 3"
    assert newcomer.passage.text == "came in 5"


async def test_a_re_embedding_that_was_cut_off_continues_where_it_was(
    database: OneDatabase,
) -> None:
    class Counting(HashingEmbedder):
        embedded = 0

        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            self.embedded += len(texts)
            return await super().embed(texts)

    async with archive(database) as made:
        await made.insert(sentences(50))
        embedder = Counting(96, model="new")
        first = VectorUpkeep(made.database, lambda *_: embedder)
        await first.begin(TENANT, made.collection, embedder)
        await first.step(TENANT, made.collection)
        second = VectorUpkeep(made.database, lambda *_: embedder)
        await second.begin(TENANT, made.collection, embedder)
        while await second.step(TENANT, made.collection):
            pass
        switched = await made.stored()
        again = await second.begin(TENANT, made.collection, embedder)
    assert embedder.embedded == 50
    assert switched.embedding_model == "new"
    assert not again


async def test_two_that_re_embed_the_same_collection_do_no_harm(database: OneDatabase) -> None:
    async with archive(database) as made:
        await made.insert(sentences(80))
        await made.upkeep.begin(TENANT, made.collection, NEW)
        await asyncio.gather(made.finish(), made.finish())
        switched = await made.stored()
        [(vectors,)] = superuser_rows(database, f"SELECT count(*) FROM {switched.vectors_table}")
    assert (switched.embedding_model, vectors) == ("new", 80)


async def test_going_back_and_forth_finds_no_stale_vectors(database: OneDatabase) -> None:
    async with archive(database) as made:
        ids = await made.insert(sentences(20))
        await made.upkeep.begin(TENANT, made.collection, NEW)
        await made.finish()
        await made.delete(ids[0])
        await made.update(ids[1], "something else entirely")
        await made.upkeep.begin(TENANT, made.collection, OLD)
        await made.finish()
        stored = await made.stored()
        [found] = (await made.search("something else entirely"))[:1]
        [(vectors,)] = superuser_rows(database, f"SELECT count(*) FROM {stored.vectors_table}")
        retired = superuser_rows(database, "SELECT vectors_table FROM retired_vectors")
    assert (stored.embedding_model, vectors) == ("old", 19)
    assert found.passage.id == ids[1]
    assert len(retired) == 1


async def test_vectors_of_another_model_or_dimension_are_refused_with_what_to_do(
    database: OneDatabase,
) -> None:
    async with archive(database) as made:
        for model, size in (("old", 63), ("new", 64)):
            new = [NewPassage("x", [1.0] * size)]
            async with made.database.tenant(TENANT) as tx:
                with pytest.raises(EmbeddingError) as refused:
                    await passages.insert(tx, made.collection, new, model=model)
            assert "64 dimensions" in refused.value.message
            assert "memserver reembed" in refused.value.hint
        assert (await made.stored()).passage_count == 0


async def test_passages_with_ids_of_the_caller_are_inserted_once_and_counted_once(
    database: OneDatabase,
) -> None:
    async with archive(database) as made:
        ids = [uuid4() for _ in range(5)]
        counts = []
        for part in (ids[:3], ids[1:]):
            async with made.database.tenant(TENANT) as tx:
                new = [NewPassage(f"text {id_}", [1.0] + [0.0] * 63, id=id_) for id_ in part]
                stored = await passages.insert(tx, made.collection, new, model="old")
            counts.append((len(stored), (await made.stored()).passage_count))
    assert counts == [(3, 3), (2, 5)]
