"""Automatic recall: before the model's first step the server itself searches the history for the message.

The call and its result are committed like one of the agent's own, and count neither as a step of the model
nor against the rules of its tools. What the queue still shows is not looked for, and what matches too little
is left out: where nothing is left there is no call.
"""

from dataclasses import dataclass, replace
from datetime import tzinfo
from uuid import UUID

from memserver.llm.call_ids import new_call_id
from memserver.memory.excerpt import Query
from memserver.memory.extract import PLAIN
from memserver.memory.folding import Folded
from memserver.memory.paging import Page
from memserver.memory.recall import RecallHit, RecallStorage
from memserver.memory.results import Reader
from memserver.messages import CallRecord, ToolCall
from memserver.storage.calls import AUTOMATIC
from memserver.storage.database import LazyTransaction
from memserver.storage.recall import RecallQuery

SEARCH = "recall_memory_search"
QUERY_CHARACTERS = 300
LOOKED_AT, MOST_SHOWN = 20, 5
SHARED_WORDS = 2
"""So many words in common make a message worth showing, whatever it means."""
PATIENCE = 5.0
"""Seconds that the embedder may take; then words alone decide."""


@dataclass(frozen=True, slots=True)
class AutoRecall:
    """What is looked for, of which agent.

    Attributes:
        agent_id: whose history.
        text: the message.
        before: the position at which the queue begins.
        floor: cosine similarity from which on a message is worth showing.
    """

    agent_id: UUID
    text: str
    before: int
    floor: float

    @property
    def query(self) -> str:
        """The beginning of the message."""
        return self.text.strip()[:QUERY_CHARACTERS]

    def call(self) -> ToolCall:
        """The call, as an agent would make it."""
        return ToolCall(f"{AUTOMATIC}{new_call_id()}", SEARCH, {"query": self.query})

    async def result(
        self, storage: RecallStorage, transaction: LazyTransaction, zone: tzinfo, reader: Reader
    ) -> str | None:
        """What the search found, as the model reads it; None where nothing is worth showing."""
        wanted = Query(self.query)
        if not (wanted.grams or _distinctive(wanted)):
            return None
        query = RecallQuery(text=self.query, before=self.before)
        looked_at = Page(1, LOOKED_AT)
        found = await storage.search(
            transaction, self.agent_id, query, looked_at, patience=PATIENCE
        )
        await transaction.roll_back()  # nothing stays open while tokens are counted
        page = Page(1, min(MOST_SHOWN, reader.page(1).size))
        hits = [hit for hit in found.hits if self._is_near(hit, wanted)][: page.size]
        if not hits:
            return None
        shown = replace(found, hits=tuple(hits), total=len(hits), exact=True, next=None, page=page)
        return await shown.describe(zone, reader)

    def _is_near(self, hit: RecallHit, wanted: Query) -> bool:
        if "exact" in hit.found_by or (hit.score or 0) >= self.floor:
            return True
        distinctive = _distinctive(wanted)
        folded = Folded(hit.message.text)
        words = (folded.text[start:end] for start, end in folded.words())
        shared = {wanted.term_of(word) for word in words} & distinctive
        return bool(distinctive) and len(shared) >= min(SHARED_WORDS, len(distinctive))


def is_automatic(record: CallRecord) -> bool:
    """Whether the server made this call, and not the model."""
    return record.call.id.startswith(AUTOMATIC)


def _distinctive(wanted: Query) -> set[int | None]:
    """The words of a query that are no everyday ones."""
    return {term for word, term in wanted.words.items() if word not in PLAIN}
