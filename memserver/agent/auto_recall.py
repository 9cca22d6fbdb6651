"""Automatic recall: before the model's first step the server itself searches the history for the message.

The call and its result are those of the agent's own search, committed like these, and count neither as a step of the
model nor against the rules of its tools. Where nothing that has left the queue matches enough there is no call.
"""

from memserver.agent.pressure import MemoryPressure
from memserver.agent.turn_record import TurnWriter
from memserver.agent.turn_state import TurnState
from memserver.llm.call_ids import new_call_id
from memserver.memory.excerpt import Query
from memserver.memory.extract import PLAIN
from memserver.memory.folding import Folded
from memserver.memory.recall import RecallHit
from memserver.memory.results import ResultReader
from memserver.messages import CallRecord, FunctionCall
from memserver.storage.calls import AUTOMATIC
from memserver.storage.database import TenantScope
from memserver.storage.recall import RecallQuery

SEARCH = "recall_memory_search"
QUERY_CHARACTERS = 300
SHARED_WORDS = 2
"""So many words in common make a page worth showing, whatever its messages mean."""
PATIENCE = 5.0
"""Seconds that the embedder may take; then words alone decide."""


async def recall_first(state: TurnState, record: TurnWriter, pressure: MemoryPressure) -> None:
    """Search for the turn's message, where the agent wants that and nothing has come of the message yet."""
    floor = state.deps.limits.recall_floor(state.view.options)
    asked = state.queue[-1] if state.queue else None
    if floor is None or asked is None or asked.position != state.first or asked.role != "user":
        return
    prompt = await pressure.make_room()
    if not state.queue_start or state.tools.get(SEARCH) is None:
        return
    text = asked.text.strip()[:QUERY_CHARACTERS]
    arguments = {"query": text, "request_heartbeat": True}
    made = CallRecord(FunctionCall(f"{AUTOMATIC}{new_call_id()}", SEARCH, arguments), "running")
    call = state.entry(asked.position + 1, "assistant", "", call=made)
    reader = state.counting.reader(call, prompt.budget, can_read_on=state.can_read_on)
    async with state.deadline.cutting():
        result = await _search(state, text, floor, reader)
    if result is not None:
        await record.add_unasked(await state.close(call, "done", result))


async def _search(state: TurnState, text: str, floor: float, reader: ResultReader) -> str | None:
    """The search's first page, as the model reads it; None where nothing near is out of sight."""
    query = Query(text)
    distinctive: set[int | None] = {term for word, term in query.words.items() if word not in PLAIN}
    if not (query.grams or distinctive):
        return None
    found = await state.deps.recall.search(
        TenantScope(state.deps.database, state.lease.tenant),
        state.turn.agent_id,
        RecallQuery(text=text, before=state.first),
        reader.page(1),
        patience=PATIENCE,
    )
    away = [hit for hit in found.hits if hit.message.position < state.queue_start]
    if not any(_is_near(hit, query, distinctive, floor) for hit in away):
        return None
    return await found.describe(state.view.zone, reader)


def _is_near(hit: RecallHit, query: Query, distinctive: set[int | None], floor: float) -> bool:
    """Whether a hit has the query's text, its meaning, or its less usual words."""
    if "exact" in hit.found_by or (hit.score or 0) >= floor:
        return True
    folded = Folded(hit.message.text)
    words = (folded.text[start:end] for start, end in folded.words())
    shared = {query.term_of(word) for word in words} & distinctive
    return bool(distinctive) and len(shared) >= min(SHARED_WORDS, len(distinctive))
