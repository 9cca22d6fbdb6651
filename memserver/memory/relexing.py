"""Lexes the passages of a collection whose language was changed: a job, in bounded steps that may be repeated."""

import time
from uuid import UUID

from memserver.errors import NotFound
from memserver.memory.language import UNSURE, detect_aside
from memserver.storage import collections, languages, vector_builds
from memserver.storage.database import Database
from memserver.storage.jobs import JobRun

JOB_SECONDS = 5.0  # how long a job works before it makes room for others and queues the rest


async def relex(database: Database, job: JobRun) -> None:
    """Lex a collection's passages again for a while; if more is left, queue the rest."""
    collection_id = UUID(str(job.args["collection"]))
    until = time.monotonic() + JOB_SECONDS
    try:
        while await _step(database, job.tenant, collection_id):
            if time.monotonic() > until:
                async with database.tenant(job.tenant) as tx:
                    await languages.queue(tx, await collections.get(tx, collection_id))
                return
    except NotFound:  # the collection was deleted meanwhile
        return


async def _step(database: Database, tenant: str, collection_id: UUID) -> bool:
    """Lex the next passages; false when all are lexed."""
    async with database.tenant(tenant) as tx:
        collection = await collections.get(tx, collection_id)
        if collection.relexed_to is None:
            return False
        passages = await languages.next_to_relex(tx, collection)
        if not passages:
            await languages.end(tx, collection)
            await vector_builds.count_words(tx, collection_id)
            return True
    found = [UNSURE] * len(passages)
    if collection.language == collections.AUTO:
        found = await detect_aside([passage.text for passage in passages])
    async with database.tenant(tenant) as tx:
        await languages.relex(tx, collection, passages, found)
    return True
