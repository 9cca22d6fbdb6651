"""Lexes the passages of a collection whose language was changed: a job, in bounded steps that may be repeated."""

import time
from uuid import UUID

from memserver.errors import NotFound
from memserver.memory.language import UNSURE, detect_aside
from memserver.storage import collections, languages, vector_builds
from memserver.storage.database import Database
from memserver.storage.jobs import Handler, JobRun

JOB_SECONDS = 5.0
"""How long a job works before it makes room for others and queues the rest."""


class Relexing:
    def __init__(self, database: Database) -> None:
        self._database = database

    def handlers(self) -> dict[str, Handler]:
        return {languages.JOB: self.run}

    async def run(self, job: JobRun) -> None:
        """Step for a while; if more is left, queue the rest."""
        collection_id = UUID(str(job.args["collection"]))
        until = time.monotonic() + JOB_SECONDS
        try:
            while await self._step(job.tenant, collection_id):
                if time.monotonic() > until:
                    async with self._database.tenant(job.tenant) as tx:
                        await languages.queue(tx, await collections.get(tx, collection_id))
                    return
        except NotFound:  # the collection was deleted meanwhile
            return

    async def _step(self, tenant: str, collection_id: UUID) -> bool:
        """Lex the next passages; false when all are lexed."""
        async with self._database.tenant(tenant) as tx:
            collection = await collections.get(tx, collection_id)
            if collection.relexed_to is None:
                return False
            passages = await languages.stale(tx, collection)
            if not passages:
                await languages.end(tx, collection)
                await vector_builds.count_words(tx, collection_id)
                return True
        found = [UNSURE] * len(passages)
        if collection.language == collections.AUTO:
            found = await detect_aside([passage.text for passage in passages])
        async with self._database.tenant(tenant) as tx:
            await languages.lex_again(tx, collection, passages, found)
        return True
