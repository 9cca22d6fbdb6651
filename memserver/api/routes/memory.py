"""Recall storage from outside."""

from collections.abc import Sequence
from datetime import UTC
from typing import Annotated, Literal

from fastapi import Query

from memserver.api.dependencies import AgentId, PageNumber, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.messages import FoundMessage, RecallResults
from memserver.errors import InvalidInput
from memserver.memory import recall
from memserver.memory.dates import parse_range
from memserver.memory.paging import PAGE_SIZE, Page
from memserver.memory.recall import RecallHit, RecallMode
from memserver.memory.results import excerpts, message_result
from memserver.storage import agents
from memserver.storage.database import LazyTransaction
from memserver.storage.recall import RecallQuery
from memserver.text import clean
from memserver.wiring.services import Services

router = Router(prefix="/agents/{agent}", tags=["recall storage"])

Date = Annotated[str | None, Query(max_length=40, description="ISO date or datetime; today; now.")]


@router.get("/recall/search")
async def search_recall(
    agent_id: AgentId,
    services: ServicesDep,
    tenant: TenantDep,
    query: Annotated[
        str | None, Query(min_length=1, max_length=1000, description="What to look for.")
    ] = None,
    mode: Annotated[
        RecallMode,
        Query(description="By the very text, by words in any form, by meaning, or by all three."),
    ] = "hybrid",
    ignore_case: Annotated[
        bool, Query(description="By the very text, upper and lower case alike.")
    ] = False,
    start_date: Date = None,
    end_date: Date = None,
    role: Annotated[Literal["user", "assistant"] | None, Query()] = None,
    page: PageNumber = 1,
    after: Annotated[
        str | None,
        Query(max_length=100, description="The `next` of the page before; then no `page`."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Items on a page.")] = PAGE_SIZE,
) -> RecallResults:
    """Search everything that was said, by text, by date (both ends included), by role.

    First come all messages that hold the very text, newest first; then those found by words in any order and
    form and by meaning, best first; `found_by` says which. Without a text, messages come oldest first.
    """
    wanted = _recall_query(services, query, ignore_case, (start_date, end_date), role)
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        if after is not None:
            messages, more = await recall.search_after(tx, agent_id, wanted, after, limit)
            hits = [RecallHit(message, ("exact",) if wanted.text else ()) for message in messages]
            return RecallResults(items=await _found(hits, query), next=more)
    async with LazyTransaction(services.database, tenant) as lazy:
        found = await services.deps.recall.search(lazy, agent_id, wanted, Page(page, limit), mode)
    return RecallResults.of(found, await _found(found.hits, query))


async def _found(hits: Sequence[RecallHit], query: str | None) -> list[FoundMessage]:
    """What was found, each with what matched of it."""
    found = [message_result(hit.message, UTC, found_by=hit.found_by, part=hit.part) for hit in hits]
    shown = await excerpts(found, clean(query or ""))
    return [FoundMessage.of(*pair) for pair in zip(hits, shown, strict=True)]


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
        now = services.deps.clock()
        since, until = parse_range(start or "0001-01-01", end or "now", now)
    return RecallQuery(
        text=text,
        ignore_case=ignore_case,
        since=since,
        until=until,
        roles=(role,) if role else ("user", "assistant"),
    )
