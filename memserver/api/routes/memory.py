"""Two of the memories from outside: working context and recall storage."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from memserver.api.dependencies import PageNumber, ServicesDep, TenantDep
from memserver.api.schemas import (
    MessageOut,
    RecallResults,
    SectionEdit,
    SectionOut,
    WorkingContext,
)
from memserver.memory import recall, working_context
from memserver.memory.dates import parse_range
from memserver.memory.paging import Page
from memserver.memory.text import clean
from memserver.storage import agents, sections
from memserver.storage.recall import RecallQuery

router = APIRouter(prefix="/agents/{agent_id}", tags=["memory"])

Date = Annotated[str | None, Query(max_length=40, description="ISO date or datetime; today; now.")]


@router.get("/working-context")
async def get_working_context(
    agent_id: UUID, services: ServicesDep, tenant: TenantDep
) -> WorkingContext:
    """The sections of the working context."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        found = await sections.read_all(tx, agent_id)
    return WorkingContext(sections=[SectionOut.read(section) for section in found])


@router.patch("/working-context/{section}")
async def edit_section(
    agent_id: UUID, section: str, edit: SectionEdit, services: ServicesDep, tenant: TenantDep
) -> SectionOut:
    """Give a section a new text or limit. A running turn sees it at its next step."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        edited = await working_context.rewrite(tx, agent_id, clean(section), edit.text, edit.limit)
    return SectionOut.read(edited)


@router.get("/recall/search")
async def search_recall(
    agent_id: UUID,
    services: ServicesDep,
    tenant: TenantDep,
    query: Annotated[
        str | None, Query(min_length=1, max_length=1000, description="A literal substring.")
    ] = None,
    ignore_case: bool = False,
    start_date: Date = None,
    end_date: Date = None,
    role: Annotated[Literal["user", "assistant"] | None, Query()] = None,
    page: PageNumber = 1,
) -> RecallResults:
    """Search everything that was said, by words, by date (both ends included), by role."""
    since = until = None
    if start_date is not None or end_date is not None:
        now = services.faculties.clock()
        since, until = parse_range(start_date or "0001-01-01", end_date or "now", now)
    wanted = RecallQuery(
        text=clean(query) if query else None,
        ignore_case=ignore_case,
        since=since,
        until=until,
        roles=(role,) if role else ("user", "assistant"),
    )
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        found = await recall.search(tx, agent_id, wanted, Page(page))
    return RecallResults(
        items=[MessageOut.read(message) for message in found.messages],
        total=found.total,
        page=page,
        pages=found.page.pages(found.total),
    )
