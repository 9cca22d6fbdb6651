import asyncio
from collections.abc import Sequence

import pytest

from memserver.embeddings.base import Vector
from memserver.embeddings.batching import BatchingEmbedder
from memserver.errors import EmbeddingError
from memserver.testing.hashing_embedder import HashingEmbedder


class Watched(HashingEmbedder):
    """Records its batches, refuses the text "bad", and waits for `free` before each batch."""

    def __init__(self) -> None:
        super().__init__(16)
        self.batches: list[list[str]] = []
        self.free = asyncio.Event()
        self.free.set()
        self.busy = asyncio.Event()
        self.defect: Exception | None = None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.batches.append(list(texts))
        self.busy.set()
        await self.free.wait()
        if self.defect:
            raise self.defect
        if "bad" in texts:
            raise EmbeddingError("bad text")
        return await super().embed(texts)


async def occupied(inner: Watched, embedder: BatchingEmbedder) -> asyncio.Task[list[Vector]]:
    """A first request that the inner embedder is busy with until `free` is set."""
    inner.free.clear()
    first = asyncio.create_task(embedder.embed(["first"]))
    await inner.busy.wait()
    return first


def ask(embedder: BatchingEmbedder, *requests: list[str]) -> list[asyncio.Task[list[Vector]]]:
    return [asyncio.create_task(embedder.embed(texts)) for texts in requests]


async def settled() -> None:
    """Lets the tasks just made run until they wait."""
    await asyncio.sleep(0)


async def test_a_lone_request_is_embedded_at_once():
    inner = Watched()
    await BatchingEmbedder(inner).embed(["one", "two"])
    assert inner.batches == [["one", "two"]]


async def test_requests_that_wait_at_the_same_time_become_one_batch():
    inner = Watched()
    embedder = BatchingEmbedder(inner)
    first = await occupied(inner, embedder)
    others = ask(embedder, ["a"], ["b", "c"], ["d"])
    await settled()
    inner.free.set()
    await asyncio.gather(first, *others)
    assert inner.batches == [["first"], ["a", "b", "c", "d"]]
    assert [await task for task in others] == [
        await HashingEmbedder(16).embed(texts) for texts in (["a"], ["b", "c"], ["d"])
    ]


async def test_a_search_does_not_wait_for_a_long_ingestion():
    inner = Watched()
    embedder = BatchingEmbedder(inner, batch_size=4)
    first = await occupied(inner, embedder)
    long, search = ask(embedder, [str(number) for number in range(9)], ["search"])
    await settled()
    inner.free.set()
    await asyncio.gather(first, long, search)
    assert "search" in inner.batches[1]
    assert [len(batch) for batch in inner.batches] == [1, 3, 4, 3]
    assert await long == await HashingEmbedder(16).embed([str(number) for number in range(9)])


async def test_a_text_that_fails_fails_only_the_request_it_is_in():
    inner = Watched()
    embedder = BatchingEmbedder(inner)
    first = await occupied(inner, embedder)
    good, bad, other = ask(embedder, ["a"], ["x", "bad"], ["b"])
    await settled()
    inner.free.set()
    with pytest.raises(EmbeddingError, match="bad text"):
        await bad
    assert len(await good) == len(await other) == len(await first) == 1


async def test_cancelling_one_waiter_leaves_the_others_their_vectors():
    inner = Watched()
    embedder = BatchingEmbedder(inner)
    first = await occupied(inner, embedder)
    gone, stays = ask(embedder, ["gone"], ["stays"])
    await settled()
    gone.cancel()
    first.cancel()
    await settled()
    inner.free.set()
    assert len(await stays) == 1
    assert inner.batches == [["first"], ["stays"]]


async def test_closing_refuses_those_who_wait():
    inner = Watched()
    embedder = BatchingEmbedder(inner)
    first = await occupied(inner, embedder)
    (waiting,) = ask(embedder, ["a"])
    await settled()
    await embedder.aclose()
    for task in (first, waiting):
        with pytest.raises(EmbeddingError, match="closed"):
            await task
    with pytest.raises(EmbeddingError, match="closed"):
        await embedder.embed(["late"])


async def test_a_defect_in_the_embedder_reaches_everybody_and_is_survived():
    inner = Watched()
    embedder = BatchingEmbedder(inner)
    inner.defect = ZeroDivisionError()
    for task in ask(embedder, ["a"], ["b"]):
        with pytest.raises(ZeroDivisionError):
            await task
    inner.defect = None
    assert len(await embedder.embed(["c"])) == 1


async def test_an_embedder_that_loses_vectors_is_an_error():
    class Lossy(HashingEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            return (await super().embed(texts))[1:]

    with pytest.raises(EmbeddingError, match="1 vectors for 2 texts"):
        await BatchingEmbedder(Lossy(16)).embed(["a", "b"])
