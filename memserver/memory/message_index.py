"""Indexing what was said, in the background: its words first, then its vectors, of all of a tenant's agents together.

Each embedding model has vectors of its own: with another model the history is embedded again, and until that is
done only what has been embedded again is found by meaning.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from memserver.errors import EmbeddingRejected
from memserver.memory.archival import ArchivalStorage
from memserver.memory.chunking import embed_each
from memserver.memory.language import detect_aside
from memserver.storage import message_index, message_vectors
from memserver.storage.database import Database
from memserver.storage.jobs import Job, JobRun, defer
from memserver.storage.message_index import JOB, PRIORITY
from memserver.storage.message_vectors import PartVector

logger = logging.getLogger(__name__)

AT_LATEST = 60.0  # seconds after which messages are indexed though their tenant isn't quiet
WORDS_AT_ONCE = 256  # messages whose words are indexed together
BATCH = 64  # messages that are embedded and stored together
LARGE_AT_ONCE = 256  # vectors that are put into the index together
BATCHES_OF_A_JOB = 20  # then the next job continues, after what else waits
PART_BYTES = 700
"""Of UTF-8. What an embedder of 256 tokens sees whole, in most scripts; longer messages have several vectors."""
MOST_PARTS = 150  # of a message: the first hundred kilobytes


class MessageIndexing:
    def __init__(
        self,
        database: Database,
        archival: ArchivalStorage,
        *,
        embeds: bool = True,
        quiet: float = 0,
    ) -> None:
        """Index words, and vectors of archival storage's embedder if `embeds`.

        A tenant's messages are indexed after `quiet` seconds in which no turn has ended, so that turns have the
        machine and many messages are indexed together.
        """
        self._database = database
        self._archival = archival
        self._embeds = embeds
        self._quiet = quiet

    async def run(self, job: JobRun) -> None:
        """Index a tenant's messages from where that stands; another job continues where there are many, or later."""
        next_one = Job(JOB, job.tenant, key=job.tenant, priority=PRIORITY)
        async with self._database.tenant(job.tenant) as tx:
            if not await message_index.is_due(tx, self._quiet, AT_LATEST):
                later = datetime.now(UTC) + timedelta(seconds=self._quiet)
                await defer(tx, replace(next_one, due=later))
                return
        # New vectors of an agent that is large already are stored in the index at once.
        for step in (self._words, self._large, self._vectors, self._large):
            for _ in range(BATCHES_OF_A_JOB):
                if not await step(job.tenant):
                    break
            else:
                async with self._database.tenant(job.tenant) as tx:
                    await defer(tx, next_one)
                return
        await self._finish(job.tenant)

    async def _words(self, tenant: str) -> bool:
        """Index the words of the next messages; returns whether there were any."""
        async with self._database.tenant(tenant) as tx:
            found = await message_index.without_words(tx, WORDS_AT_ONCE)
        for pending in found:
            detected = await detect_aside(pending.texts)
            async with self._database.tenant(tenant) as tx:
                await message_index.index_words(tx, pending, detected)
        return bool(found)

    async def _vectors(self, tenant: str) -> bool:
        """Embed and store the next messages; returns whether there were any."""
        if not self._embeds:
            return False
        model, dimension = self._archival.embedder.model, await self._archival.dimension()
        async with self._database.tenant(tenant) as tx:
            found = await message_vectors.without_vectors(tx, model, dimension, BATCH)
        if not found:
            return False
        parts = [
            (agent, position, number, text[part])
            for agent, pending in enumerate(found)
            for position, text in zip(pending.positions, pending.texts, strict=True)
            for number, part in enumerate(parts_of(text))
        ]
        made: list[list[PartVector]] = [[] for _ in found]
        for start in range(0, len(parts), BATCH):
            chunk = parts[start : start + BATCH]
            embedded = await embed_each([text for *_, text in chunk], self._archival.embedder)
            for (agent, position, number, _), vector in zip(chunk, embedded, strict=True):
                if isinstance(vector, EmbeddingRejected):
                    logger.warning("A part of a message has no vector. %s", vector.message)
                else:
                    made[agent].append(PartVector(position, number, vector))
        async with self._database.tenant(tenant) as tx:
            await message_vectors.store(tx, model, dimension, found, made)
        return True

    async def _large(self, tenant: str) -> bool:
        """Put vectors of agents that have become large into their index; returns whether there were any."""
        if not self._embeds:
            return False
        model, dimension = self._archival.embedder.model, await self._archival.dimension()
        async with self._database.tenant(tenant) as tx:
            return await message_vectors.index_more(tx, model, dimension, LARGE_AT_ONCE)

    async def _finish(self, tenant: str) -> None:
        model = self._archival.embedder.model if self._embeds else None
        dimension = self._archival.embedder.dimension
        async with self._database.tenant(tenant) as tx:
            await message_index.finish(tx, model, dimension)
            if model is not None:
                await message_vectors.forget_other_models(tx, model, dimension)


def parts_of(text: str) -> Iterator[slice]:
    """Where the pieces of a text lie: of PART_BYTES at most, cut between words where there are any, without blanks.

    Of a text that has more, the first MOST_PARTS.
    """
    start, end = 0, len(text)
    for _ in range(MOST_PARTS):
        while start < end and text[start].isspace():
            start += 1
        if start == end:
            return
        piece = text[start : start + PART_BYTES].encode()[:PART_BYTES].decode(errors="ignore")
        if start + len(piece) < end:
            space = max(piece.rfind(" "), piece.rfind("\n"))
            if space > len(piece) // 2:
                piece = piece[:space]
        yield slice(start, start + len(piece.rstrip()))
        start += len(piece)
