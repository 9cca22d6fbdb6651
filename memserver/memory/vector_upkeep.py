"""Gives collections the vectors they should have: of another model, or with an index where they have grown.

Owns the order of the steps, each of which is bounded, commits its progress, and may be repeated. Runs as
jobs, and from the command line. Leaves the SQL to `storage.vector_builds`.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.embeddings.base import Embedder, Vector
from memserver.errors import EmbeddingRejected, NotFound
from memserver.memory.chunking import embed_whole
from memserver.storage import collections, jobs, passages, vector_builds
from memserver.storage.collections import CollectionRow, Outdated
from memserver.storage.database import Database
from memserver.storage.jobs import Handler, Job, JobRun
from memserver.storage.languages import PendingPassage
from memserver.storage.vector_builds import Build

logger = logging.getLogger(__name__)

REEMBED_JOB = "reembed_collection"
EMBEDDED_AT_ONCE = 64
COPIED_AT_ONCE = 5000
JOB_SECONDS = 5.0  # how long a job continues before it makes room for others and queues the rest
_INDEX_BYTES = 1500
"""Memory for each vector of 384 dimensions while an index is built; others in proportion."""


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is: vectors stored, of so many passages; `state` says what comes now."""

    stored: int
    total: int
    state: str


class VectorUpkeep:
    def __init__(
        self,
        database: Database,
        embedder_of: Callable[[str, int], Embedder],
        *,
        index_memory: int = 1024,
    ) -> None:
        """With fewer megabytes of `index_memory` than an index needs, building it takes longer."""
        self._database = database
        self._embedder_of = embedder_of
        self._index_memory = index_memory

    def handlers(self) -> dict[str, Handler]:
        return {
            passages.UPKEEP_JOB: self.run_upkeep,
            REEMBED_JOB: self.run_reembedding,
            vector_builds.DROP_JOB: self.run_drop,
        }

    async def run_upkeep(self, job: JobRun) -> None:
        """Give a collection that has grown a table with an index, and count its common words."""
        collection_id = UUID(str(job.args["collection"]))
        try:
            async with self._database.tenant(job.tenant) as tx:
                collection = await collections.get(tx, collection_id)
                running = await vector_builds.find(tx, collection_id)
                model, dimension = collection.embedding_model, collection.dimension
                if running is not None and running.embedding_model != model:
                    return  # it is being re-embedded, which also finds it the right place
                await vector_builds.begin(tx, collection_id, model, dimension)
            await self._work(job, passages.UPKEEP_JOB)
        except NotFound:  # the collection was deleted meanwhile
            return

    async def run_reembedding(self, job: JobRun) -> None:
        """Give a collection vectors of the model that the job names."""
        collection_id = UUID(str(job.args["collection"]))
        try:
            await self.begin(
                job.tenant, collection_id, self._embedder_of(str(job.args["model"]), 0)
            )
            await self._work(job, REEMBED_JOB)
        except NotFound:
            return

    async def run_drop(self, job: JobRun) -> None:
        collection_id = UUID(str(job.args["collection"]))
        async with self._database.tenant(job.tenant) as tx:
            table = str(job.args["vectors_table"])
            await vector_builds.forget_retired(tx, table, collection_id)

    async def begin(self, tenant: str, collection_id: UUID, embedder: Embedder) -> bool:
        """Begin to give a collection vectors of this embedder's model, or continue; false if nothing is to do."""
        if not embedder.dimension:
            await embedder.embed(["dimension"])
        async with self._database.tenant(tenant) as tx:
            build = await vector_builds.begin(tx, collection_id, embedder.model, embedder.dimension)
        return build is not None

    async def outdated(self, embedder: Embedder) -> list[Outdated]:
        if not embedder.dimension:
            await embedder.embed(["dimension"])
        async with self._database.across_tenants() as tx:
            return await collections.of_other_models(tx, embedder.model, embedder.dimension)

    async def reembed(self, outdated: Outdated, embedder: Embedder) -> AsyncIterator[BuildProgress]:
        """Give a collection vectors of this embedder's model, reporting progress; one deleted is done."""
        try:
            await self.begin(outdated.tenant, outdated.collection_id, embedder)
            while stands := await self.step(outdated.tenant, outdated.collection_id):
                yield stands
        except NotFound:
            return

    async def queue(self, outdated: Sequence[Outdated], model: str) -> None:
        """Leave it to the serving processes to give collections vectors of a model."""
        for each in outdated:
            arguments = {"collection": str(each.collection_id), "model": model}
            async with self._database.tenant(each.tenant) as tx:
                key = str(each.collection_id)
                await jobs.defer(tx, Job(REEMBED_JOB, each.tenant, arguments, key))

    async def step(self, tenant: str, collection_id: UUID) -> BuildProgress | None:
        """Do the next bounded piece of a collection's build; None when nothing is left to do."""
        async with self._database.tenant(tenant) as tx:
            collection = await collections.get(tx, collection_id)
            build = await vector_builds.find(tx, collection_id)
        if build is None:
            async with self._database.tenant(tenant) as tx:
                await vector_builds.count_words(tx, collection_id)
            return None
        if build.state == "indexing":
            await self._index(tenant, build, collection.passage_count)
        elif not await self._add(tenant, collection, build):
            async with self._database.tenant(tenant) as tx:
                if build.state == "filling":
                    await vector_builds.end_filling(tx, build)
                elif await vector_builds.switch(tx, build):
                    logger.info("Collection %s has its new vectors.", collection_id)
        return BuildProgress(build.stored, collection.passage_count, build.state)

    async def _add(self, tenant: str, collection: CollectionRow, build: Build) -> bool:
        """Store the next vectors; returns whether there may be as many more.

        A batch that is not full was the last one: waiting for an empty one would be waiting for the end
        of all insertions.
        """
        serving = (collection.embedding_model, collection.dimension)
        async with self._database.tenant(tenant) as tx:
            if serving == (build.embedding_model, build.dimension):
                return await vector_builds.copy(tx, build, COPIED_AT_ONCE) == COPIED_AT_ONCE
            texts = await vector_builds.next_texts(tx, build, EMBEDDED_AT_ONCE)
        if texts:
            embedder = self._embedder_of(build.embedding_model, build.dimension)
            vectors = await _embed(texts, embedder)
            async with self._database.tenant(tenant) as tx:
                await vector_builds.store(tx, build, texts, vectors)
        return len(texts) == EMBEDDED_AT_ONCE

    async def _index(self, tenant: str, build: Build, count: int) -> None:
        needed = 64 + count * _INDEX_BYTES * build.dimension // 384 // 2**20
        async with self._database.tenant(tenant) as tx:
            await vector_builds.index(tx, build, f"{min(self._index_memory, needed)}MB")

    async def _work(self, job: JobRun, name: str) -> None:
        """Step for a while; if more is left, queue the rest."""
        collection_id = UUID(str(job.args["collection"]))
        until = time.monotonic() + JOB_SECONDS
        while await self.step(job.tenant, collection_id) is not None:
            if time.monotonic() > until:
                async with self._database.tenant(job.tenant) as tx:
                    await jobs.defer(tx, Job(name, job.tenant, job.args, key=str(collection_id)))
                return


async def _embed(texts: Sequence[PendingPassage], embedder: Embedder) -> list[Vector]:
    """Vectors of the texts; where one is refused, the error names its passage."""
    try:
        return await embed_whole([text.text for text in texts], embedder)
    except EmbeddingRejected as error:
        if not error.of_text:
            raise
    vectors = []
    for text in texts:
        try:
            vectors += await embed_whole([text.text], embedder)
        except EmbeddingRejected as error:
            message = f"Passage {text.id}: {error.message}"
            raise EmbeddingRejected(message, hint=error.hint) from error
    return vectors
