"""A document's way: cancelled, resumed, failed, deleted on the way, by several jobs and processes."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.memory import documents as ingestion
from memserver.memory.documents import DocumentStore
from memserver.storage.jobs import JobRun
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from tests.support.deaf import deaf
from tests.support.documents import LONG, MARKDOWN, ingest, passages, post, state
from tests.support.server import OneDatabase, serving


class Watched(HashingEmbedder):
    """Does something before each batch."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self._before = before
        self.batches = 0

    async def embed(self, texts: Any) -> list[Vector]:
        self.batches += 1
        await self._before(self.batches)
        return await super().embed(texts)


async def test_a_cancelled_document_stops_and_can_continue_where_it_stood(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)

    async def cancel_at_the_third(batch: int) -> None:
        if batch == 3:
            answer = await server.http.post(f"/v1/documents/{document['id']}/cancel")
            assert answer.json()["state"] == "cancelled"

    embedder = Watched(cancel_at_the_third)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        await server.run_jobs()
        stopped = await state(server, document["id"])
        kept = await passages(server, agent)
        again = await server.http.post(f"/v1/documents/{document['id']}/cancel")
        resumed = await server.http.post(f"/v1/documents/{document['id']}/resume")
        await server.run_jobs()
        done = await state(server, document["id"])
        stored = await passages(server, agent)
        late = await server.http.post(f"/v1/documents/{document['id']}/cancel")
        over = await server.http.post(f"/v1/documents/{document['id']}/resume")
    assert stopped["state"] == "cancelled"
    assert 0 < stopped["chunks_done"] == len(kept) < stopped["chunks_total"]
    assert again.status_code == 200
    assert (resumed.status_code, resumed.json()["state"]) == (202, "waiting")
    assert done["state"] == "done"
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))
    assert stored[: len(kept)] == kept
    assert late.status_code == over.status_code == 409


async def test_a_job_of_a_cancelled_document_ends_though_its_embedder_lost_the_cancellation(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)
    heard: list[str] = []

    async def cancel_then_hang(batch: int) -> None:
        if batch == 3:
            while (await state(server, document["id"]))["chunks_done"] < 6:
                pass  # until the batch before is stored, so that a fourth one begins
            await server.http.post(f"/v1/documents/{document['id']}/cancel")
        elif batch == 4:
            await deaf(heard)

    embedder = Watched(cancel_then_hang)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        async with asyncio.timeout(60):
            await server.run_jobs()
    assert heard == ["cancelled", "cancelled"]


async def test_a_document_that_is_deleted_while_it_is_taken_in_leaves_nothing(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)

    async def delete_at_the_third(batch: int) -> None:
        if batch == 3:
            await server.http.delete(f"/v1/documents/{document['id']}")

    embedder = Watched(delete_at_the_third)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        await server.run_jobs()
        stored = await passages(server, agent)
        total = (await server.get(f"{agent}/archival/search", query="x"))["total"]
        jobs = server.rows(
            "SELECT count(*) FROM procrastinate_jobs WHERE task_name LIKE 'ingest%%'"
        )
    assert stored == []
    assert total == 0
    assert jobs == [(0,)]


async def test_an_embedder_that_is_away_for_a_while_delays_a_document_and_is_reported(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)
    seen: list[Any] = []

    async def away(batch: int) -> None:
        if batch in {3, 4}:
            raise EmbeddingError("The embedder is away.")
        if batch == 5:
            seen.append((await state(server, document["id"]))["error"])

    async with serving(
        database, ScriptedModel(), embedder=Watched(away), chunk_tokens=32
    ) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        await server.run_jobs()
        done = await state(server, document["id"])
        stored = await passages(server, agent)
    assert seen == [{"code": "embedding_error", "message": "The embedder is away.", "hint": ""}]
    assert (done["state"], done["error"]) == ("done", None)
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))


async def test_a_document_that_fails_for_good_says_so_and_can_be_resumed(
    database: OneDatabase,
) -> None:
    away = True

    async def fail(batch: int) -> None:
        if away:
            raise EmbeddingError("The embedder is away.")

    async with serving(database, ScriptedModel(), embedder=Watched(fail)) as server:
        agent = await server.create_agent()
        failed = await ingest(server, f"agents/{agent}", MARKDOWN)
        away = False
        await server.http.post(f"/v1/documents/{failed['id']}/resume")
        await server.run_jobs()
        done = await state(server, failed["id"])
    assert (failed["state"], failed["error"]["code"]) == ("failed", "embedding_error")
    assert (done["state"], done["error"]) == ("done", None)


async def test_a_long_document_is_taken_in_by_several_jobs_one_after_the_other(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 5)
    monkeypatch.setattr(ingestion, "PIECE_SECONDS", 0)
    monkeypatch.setattr(ingestion, "LONGEST_SECONDS", 0)
    async with serving(database, ScriptedModel(), chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await ingest(server, f"agents/{agent}", LONG)
        stored = await passages(server, agent)
    assert document["state"] == "done"
    assert document["chunks_total"] > 50
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))


@pytest.mark.parametrize("documents", [1, 2])
async def test_a_job_leaves_the_rest_of_a_long_document_to_another_one_where_one_waits(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch, documents: int
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 20)
    monkeypatch.setattr(ingestion, "PIECE_SECONDS", 0)
    worked_on: list[Any] = []
    work = DocumentStore._work

    async def note(store: DocumentStore, tenant: str, document_id: UUID) -> None:
        worked_on.append(str(document_id))
        await work(store, tenant, document_id)

    monkeypatch.setattr(DocumentStore, "_work", note)
    async with serving(database, ScriptedModel(), chunk_tokens=32) as server:
        agent = await server.create_agent()
        posted = [
            (await post(server, f"agents/{agent}", f"{number}. {LONG}"))["id"]
            for number in range(documents)
        ]
        await server.run_jobs()
        done = [await state(server, each) for each in posted]
    assert [each["state"] for each in done] == ["done"] * documents
    if documents == 1:
        assert worked_on == posted
    else:
        assert worked_on[:4] == [*posted, *posted]


async def test_a_batch_is_embedded_by_the_tokens_of_its_texts(database: OneDatabase) -> None:
    """Not by their characters, of which alike ones may be padded by half."""
    seen: list[list[int]] = []

    class ByTokens(HashingEmbedder):
        async def embed(self, texts: Any) -> list[Vector]:
            seen.append(await self.count_tokens(texts))
            return await super().embed(texts)

        async def count_tokens(self, texts: Any) -> list[int]:
            return [1 + 9 * text.count("q") + text.count("w") for text in texts]

    text = "\n\n".join("w " * (9 - n) + "q " * n for n in (3, 7, 2, 8, 4, 6, 1, 5))
    async with serving(
        database, ScriptedModel(), embedder=ByTokens(), chunk_tokens=80, chunk_overlap=0
    ) as server:
        agent = await server.create_agent()
        await ingest(server, f"agents/{agent}", text)
    [batch] = seen
    assert len(batch) > 2
    assert batch == sorted(batch)


async def test_two_processes_that_take_the_same_document_in_store_each_passage_once(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)

    async def yield_to_the_other(batch: int) -> None:
        await asyncio.to_thread(lambda: None)

    embedder = Watched(yield_to_the_other)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        job = JobRun("default", {"document": document["id"]}, 1, False)
        await asyncio.gather(*(server.services.documents.run(job) for _ in range(2)))
        await server.run_jobs()
        done = await state(server, document["id"])
        stored = await passages(server, agent)
        total = (await server.get(f"{agent}/archival/search", query="x"))["total"]
    assert done["state"] == "done"
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))
    assert len(stored) == total == done["chunks_total"]
