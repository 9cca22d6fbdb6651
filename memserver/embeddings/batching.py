"""Merges embedding requests that wait at the same time, so that many small ones cost as few batches.

Nothing is delayed to fill a batch: a batch is what waits at the moment the embedder is free, shared evenly between the
requests, so that one search doesn't wait for a long ingestion.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.errors import EmbeddingError


@dataclass(slots=True, eq=False)
class _Request:
    texts: Sequence[str]
    done: asyncio.Future[list[Vector]]
    vectors: list[Vector] = field(default_factory=list)
    taken: int = 0

    def take(self, most: int) -> Sequence[str]:
        texts = self.texts[self.taken : self.taken + most]
        self.taken += len(texts)
        return texts

    def add(self, vectors: Sequence[Vector]) -> None:
        self.vectors.extend(vectors)
        if len(self.vectors) == len(self.texts) and not self.done.done():
            self.done.set_result(self.vectors)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


_Part = tuple[_Request, Sequence[str]]


class BatchingEmbedder(Embedder):
    def __init__(self, inner: Embedder, *, batch_size: int = 0) -> None:
        """Make it; `inner` is closed with it. `batch_size` 0: as many texts as `inner` takes at the time."""
        self.model = inner.model
        self.dimension = inner.dimension
        self.window = inner.window
        self._inner = inner
        self._batch_size = batch_size
        self._waiting: deque[_Request] = deque()
        self._in_batch: list[_Part] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    @property
    @override
    def batch_size(self) -> int:
        return self._batch_size or self._inner.batch_size

    @property
    @override
    def queries_differ(self) -> bool:
        return self._inner.queries_differ

    @override
    def describe(self) -> str:
        return self._inner.describe()

    @override
    async def check(self) -> None:
        """Ask the inner embedder. Raises EmbeddingError where it can't be used now."""
        await self._inner.check()

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        counts = await self._inner.count_tokens(texts)
        self.window = self._inner.window
        return counts

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if self._closed:
            raise EmbeddingError("The embedder is closed.")
        if not texts:
            return []
        request = _Request(tuple(texts), asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="embedding batches")
            self._worker.add_done_callback(self._stopped)
        return await request.done

    @override
    async def embed_query(self, text: str) -> Vector:
        """Embed it with what else waits, unless queries are asked for otherwise."""
        if self._inner.queries_differ:
            return await self._inner.embed_query(text)
        return await super().embed_query(text)

    @override
    async def aclose(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        await self._inner.aclose()

    async def _work(self) -> None:
        while batch := self._next_batch():
            self._in_batch = batch
            await self._embed(batch)
            self._in_batch = []
            self.dimension = self._inner.dimension

    def _next_batch(self) -> list[_Part]:
        """Texts of as many requests as fit, an equal share each; cancelled requests drop out here."""
        self._waiting = deque(request for request in self._waiting if not request.done.done())
        batch: list[_Part] = []
        room = self.batch_size
        share = max(1, room // max(1, len(self._waiting)))
        unfinished: list[_Request] = []
        while room and self._waiting:
            request = self._waiting.popleft()
            texts = request.take(min(room, share))
            room -= len(texts)
            batch.append((request, texts))
            if request.taken < len(request.texts):
                unfinished.append(request)
        self._waiting.extend(unfinished)
        return batch

    async def _embed(self, batch: list[_Part]) -> None:
        """Embed a batch; if a text may be the reason that it fails, each request by itself, so that only its own fails."""
        try:
            vectors = await self._embed_texts([text for _, texts in batch for text in texts])
        except EmbeddingError as error:
            if len(batch) > 1 and error.of_text:
                for part in batch:
                    await self._embed([part])
                return
            for request, _ in batch:
                request.fail(error)
            return
        start = 0
        for request, texts in batch:
            request.add(vectors[start : start + len(texts)])
            start += len(texts)

    async def _embed_texts(self, texts: list[str]) -> list[Vector]:
        vectors = await self._inner.embed(texts)
        if len(vectors) != len(texts):
            raise EmbeddingError(
                f"The embedder {self.model} gave {len(vectors)} vectors for {len(texts)} texts."
            )
        return vectors

    def _stopped(self, worker: asyncio.Task[None]) -> None:
        """When the worker ends early, by closing or by a defect, nobody may wait for ever."""
        error: BaseException | None = EmbeddingError("The embedder was closed.")
        if not worker.cancelled():
            error = worker.exception()
        if error is None:
            return
        for request in [*self._waiting, *(request for request, _ in self._in_batch)]:
            request.fail(error)
        self._waiting.clear()
        self._in_batch = []
