"""Recall storage from outside."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from memserver.api.dependencies import AgentId, PageNumber, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.answers import found_message, recall_results
from memserver.errors import InvalidInput
from memserver.memory import paging, recall
from memserver.memory.dates import parse_range
from memserver.memory.recall import RecallHit
from memserver.memory.results import excerpts, message_result
from memserver.storage import agents
from memserver.storage.database import TenantScope
from memserver.storage.recall import RecallQuery
from memserver.text import clean
from memserver.wire.messages import FoundMessage, RecallMode, RecallResults

router = Router(prefix="/agents/{agent}", tags=["recall storage"])

Date = Annotated[str | None, Field(max_length=40, description="ISO date or datetime; today; now.")]


class RecallParams(BaseModel):
    """What is looked for, and where in the results to begin."""

    query: str | None = Field(
        default=None, min_length=1, max_length=1000, description="What to look for."
    )
    mode: RecallMode = Field(
        default="hybrid",
        description="By the very text, by words in any form, by meaning, or by all three.",
    )
    ignore_case: bool = Field(
        default=False, description="By the very text, upper and lower case alike."
    )
    start_date: Date = None
    end_date: Date = None
    role: Literal["user", "assistant"] | None = None
    page: PageNumber = 1
    after: str | None = Field(
        default=None, max_length=100, description="The `next` of the page before; then no `page`."
    )
    limit: int = Field(default=paging.PAGE_SIZE, ge=1, le=100, description="Items on a page.")


@router.get("/recall/search")
async def search_recall(
    agent_id: AgentId,
    services: ServicesDep,
    tenant: TenantDep,
    params: Annotated[RecallParams, Query()],
) -> RecallResults:
    """Search everything that was said, by text, by date (both ends included), by role.

    First come all messages that hold the very text, newest first; then those found by words in any order and
    form and by meaning, best first; `found_by` says which. Without a text, messages come oldest first.
    """
    wanted = _recall_query(params, services.deps.clock())
    scope, after = TenantScope(services.database, tenant), params.after
    await scope.read(lambda tx: agents.get(tx, agent_id))
    if after is not None:
        messages, more = await scope.read(
            lambda tx: recall.search_after(tx, agent_id, wanted, after, params.limit)
        )
        hits = [RecallHit(message, ("exact",) if wanted.text else ()) for message in messages]
        return RecallResults(items=await _found(hits, params.query), next=more)
    found = await services.deps.recall.search(
        scope, agent_id, wanted, paging.ResultPage(params.page, params.limit), params.mode
    )
    return recall_results(found, await _found(found.hits, params.query))


async def _found(hits: Sequence[RecallHit], query: str | None) -> list[FoundMessage]:
    """What was found, each with what matched of it."""
    found = [message_result(hit.message, UTC, found_by=hit.found_by, part=hit.part) for hit in hits]
    shown = await excerpts(found, clean(query or ""))
    return [found_message(*pair) for pair in zip(hits, shown, strict=True)]


def _recall_query(params: RecallParams, now: datetime) -> RecallQuery:
    """What to look for, from a request's parameters. Raises InvalidInput."""
    text = None if params.query is None else clean(params.query)
    if text == "":
        raise InvalidInput("query: there is nothing to look for.")
    since = until = None
    if params.start_date is not None or params.end_date is not None:
        since, until = parse_range(params.start_date or "0001-01-01", params.end_date or "now", now)
    return RecallQuery(
        text=text,
        ignore_case=params.ignore_case,
        since=since,
        until=until,
        roles=(params.role,) if params.role else ("user", "assistant"),
    )
