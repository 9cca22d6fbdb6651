"""Recall storage from outside."""

from collections.abc import Sequence
from datetime import UTC
from typing import Annotated, Literal

from fastapi import Query

from memserver.api.dependencies import AgentId, PageNumber, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.messages import FoundMessage, RecallResults
from memserver.embeddings.base import Vector
from memserver.errors import InvalidInput
from memserver.memory import recall, recall_meaning
from memserver.memory.dates import parse_range
from memserver.memory.paging import PAGE_SIZE, Page
from memserver.memory.results import excerpts, message_result
from memserver.memory.text import clean
from memserver.messages import Message
from memserver.storage import agents
from memserver.storage.recall import RecallQuery
from memserver.wiring.services import Services

router = Router(prefix="/agents/{agent}", tags=["recall storage"])

Date = Annotated[str | None, Query(max_length=40, description="ISO date or datetime; today; now.")]


@router.get("/recall/search")
async def search_recall(
    agent_id: AgentId,
    services: ServicesDep,
    tenant: TenantDep,
    query: Annotated[
        str | None, Query(min_length=1, max_length=1000, description="A literal substring.")
    ] = None,
    ignore_case: bool = False,
    start_date: Date = None,
    end_date: Date = None,
    role: Annotated[Literal["user", "assistant"] | None, Query()] = None,
    meaning: Annotated[
        str | None, Query(min_length=1, max_length=1000, description="What it is about.")
    ] = None,
    page: PageNumber = 1,
    after: Annotated[
        str | None,
        Query(max_length=100, description="The `next` of the page before; then no `page`."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Items on a page.")] = PAGE_SIZE,
) -> RecallResults:
    """Search everything that was said, by words, by date (both ends included), by role, by meaning.

    By meaning comes best first, what was found by words newest first, else oldest first. Only messages
    of agents with the option embed_recall can be searched by meaning.
    """
    wanted = _recall_query(services, query, ignore_case, (start_date, end_date), role)
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        if meaning is None and after is not None:
            messages, more = await recall.search_after(tx, agent_id, wanted, after, limit)
            return RecallResults(items=await _found(messages, query), next=more)
        if meaning is None:
            found = await recall.search(tx, agent_id, wanted, Page(page, limit))
            return RecallResults.of(found, await _found(found.messages, query))
    if after is not None:
        raise InvalidInput("after: what is found by meaning has pages.", hint="Use `page`.")
    vector = await _query_vector(services, "meaning", meaning)
    async with services.database.tenant(tenant) as tx:
        by_meaning = await recall_meaning.search(
            tx,
            agent_id,
            wanted,
            Page(page, limit),
            model=services.archival.embedder.model,
            vector=vector,
        )
    return RecallResults.by_meaning(by_meaning, await _found(by_meaning.messages, meaning))


async def _found(messages: Sequence[Message], query: str | None) -> list[FoundMessage]:
    """What was found, each with what matched of it."""
    found = [message_result(message, UTC) for message in messages]
    shown = await excerpts(found, clean(query or ""))
    return [FoundMessage.of(*pair) for pair in zip(messages, shown, strict=True)]


async def _query_vector(services: Services, parameter: str, text: str) -> Vector:
    """The vector of what is looked for. Raises InvalidInput for a blank."""
    cleaned = clean(text)
    if not cleaned.strip():
        raise InvalidInput(f"{parameter}: there is nothing to look for.")
    [vector] = await services.archival.embedder.embed([cleaned])
    return vector


def _recall_query(
    services: Services,
    query: str | None,
    ignore_case: bool,
    dates: tuple[str | None, str | None],
    role: str | None,
) -> RecallQuery:
    """What to look for, from a request's parameters. Raises InvalidInput."""
    text = None if query is None else clean(query)
    if text == "":
        raise InvalidInput("query: there is nothing to look for.")
    since = until = None
    if any(date is not None for date in dates):
        start, end = dates
        now = services.faculties.clock()
        since, until = parse_range(start or "0001-01-01", end or "now", now)
    return RecallQuery(
        text=text,
        ignore_case=ignore_case,
        since=since,
        until=until,
        roles=(role,) if role else ("user", "assistant"),
    )
