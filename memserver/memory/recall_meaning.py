"""Recall storage by meaning: embedding the history in the background, and searching what has been embedded.

For agents whose option embed_recall is on. Each embedding model has vectors of its own: with another model the
history is embedded anew, and until that is done only what has been embedded again is found by meaning.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from uuid import UUID

from memserver.embeddings.base import Vector
from memserver.errors import InvalidInput
from memserver.memory.archival import ArchivalStorage
from memserver.memory.paging import Page, describe
from memserver.memory.recall import line
from memserver.messages import Message
from memserver.storage import recall, recall_vectors
from memserver.storage.database import Database, Transaction
from memserver.storage.jobs import Job, JobRun, defer
from memserver.storage.recall import RecallQuery, Span
from memserver.storage.recall_nearest import nearest
from memserver.storage.recall_vectors import JOB, OPTION, PartVector, Pending

BATCH = 64
"""Messages that are embedded and stored together."""
BATCHES_OF_A_JOB = 20
"""Then the next job goes on, behind what else waits."""
PART_BYTES = 700
"""Of UTF-8. What an embedder of 256 tokens sees whole, in most scripts; longer messages have several vectors."""
PRIORITY = -10


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of an agent's messages can be found by meaning; `complete`: all of turns that have ended."""

    embedded: int
    messages: int
    complete: bool


@dataclass(frozen=True, slots=True)
class MeaningPage:
    """One page of a search by meaning, best first; `scores` are cosine similarities."""

    messages: tuple[Message, ...]
    scores: tuple[float, ...]
    total: int
    exact: bool
    page: Page
    coverage: Coverage

    def describe(self, zone: tzinfo) -> str:
        """The answer of the search tool, its times in this zone."""
        text = describe(
            [line(each, zone) for each in self.messages], self.page, self.total, exact=self.exact
        )
        if self.coverage.complete:
            return text
        some, of_all = self.coverage.embedded, self.coverage.messages
        return f"{text}\n(So far {some} of {of_all} messages can be found by meaning.)"


async def search(
    tx: Transaction,
    agent_id: UUID,
    query: RecallQuery,
    page: Page,
    *,
    model: str,
    vector: Vector,
) -> MeaningPage:
    """The messages that a query matches, nearest to a vector first. A page that doesn't exist is empty.

    Args:
        tx: in the tenant's scope.
        agent_id: whose history.
        query: narrows the messages.
        page: which page.
        model: the embedding model's name.
        vector: of what is looked for, by that model.

    Raises:
        InvalidInput: the agent's history is not embedded.
    """
    tenant = await recall_vectors.wanting(tx, agent_id)
    if tenant is None:
        raise InvalidInput(
            "This agent's messages are not embedded, so they can't be searched by meaning.",
            hint=f"Set the agent's option {OPTION} to true.",
        )
    state = await recall_vectors.embedded(tx, agent_id, model, len(vector))
    messages, settled = await recall_vectors.said(tx, agent_id)
    complete = settled <= (state.embedded_to if state else 0)
    if not complete:  # as after a change of the embedding model
        await defer(tx, _embedding(tenant, agent_id))
    if state is None:
        return MeaningPage((), (), 0, True, page, Coverage(0, messages, complete))
    span = Span(page.size if page.number >= 1 else 0, min(max(page.offset, 0), 2**61))
    best = await nearest(tx, state, vector, query, span)
    found = await recall.at_positions(tx, agent_id, [near.position for near in best.found])
    scores = tuple(near.score for near in best.found)
    coverage = Coverage(state.messages, messages, complete)
    return MeaningPage(tuple(found), scores, best.total, best.exact, page, coverage)


class RecallEmbedding:
    """Embeds histories: the handler of the job `embed_recall`."""

    def __init__(self, database: Database, archival: ArchivalStorage) -> None:
        """Make it; the embedder is archival storage's."""
        self._database = database
        self._archival = archival

    async def run(self, job: JobRun) -> None:
        """Embed an agent's messages from where that stands; another job goes on where there are many.

        Raises:
            EmbeddingError: the embedder failed; what was stored before stays.
        """
        agent_id = UUID(str(job.args["agent"]))
        for number in range(1, BATCHES_OF_A_JOB + 1):
            if await self._batch(job.tenant, agent_id, last=number == BATCHES_OF_A_JOB):
                return

    async def _batch(self, tenant: str, agent_id: UUID, *, last: bool) -> bool:
        """Embed and store the next messages; returns whether there is nothing more to do."""
        model, dimension = self._archival.embedder.model, await self._archival.dimension()
        async with self._database.tenant(tenant) as tx:
            state = await recall_vectors.begin(tx, agent_id, model, dimension)
            if state is None:
                return True
            batch = await recall_vectors.pending(tx, state, BATCH)
            if not batch.messages:
                if batch.until > state.embedded_to:
                    await recall_vectors.store(tx, state, batch, [])
                await recall_vectors.forget_other_models(tx, state)
                return True
        vectors = await self._vectors(batch)
        async with self._database.tenant(tenant) as tx:
            stored = await recall_vectors.store(tx, state, batch, vectors)
            if stored and last:
                await defer(tx, _embedding(tenant, agent_id))
        return not stored

    async def _vectors(self, batch: Pending) -> list[PartVector]:
        parts = [
            (position, number, part)
            for position, text in batch.messages
            for number, part in enumerate(parts_of(text))
        ]
        if not parts:
            return []
        vectors = await self._archival.embedder.embed([part for _, _, part in parts])
        return [
            PartVector(position, number, vector)
            for (position, number, _), vector in zip(parts, vectors, strict=True)
        ]


def parts_of(text: str) -> Iterator[str]:
    """A text in pieces of at most PART_BYTES, cut between words where there are any; nothing for blanks."""
    rest = text.strip()
    while rest:
        piece = rest.encode()[:PART_BYTES].decode(errors="ignore")
        if len(piece) < len(rest):
            space = max(piece.rfind(" "), piece.rfind("\n"))
            if space > len(piece) // 2:
                piece = piece[:space]
        yield piece
        rest = rest[len(piece) :].lstrip()


def _embedding(tenant: str, agent_id: UUID) -> Job:
    return Job(JOB, tenant, {"agent": str(agent_id)}, key=str(agent_id), priority=PRIORITY)
