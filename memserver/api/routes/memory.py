"""The memories from outside: working context, recall storage, archival storage."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from memserver.api.dependencies import Limit, PageNumber, ServicesDep, TenantDep
from memserver.api.schemas import (
    ArchivalResults,
    FoundPassageOut,
    MessageOut,
    PassageOut,
    PassagePage,
    PassagesIn,
    PassagesOut,
    RecallResults,
    SectionEdit,
    SectionOut,
    WorkingContext,
)
from memserver.errors import InvalidInput
from memserver.memory import recall, working_context
from memserver.memory.archival import PassageText
from memserver.memory.dates import parse_range
from memserver.memory.paging import Page
from memserver.memory.text import clean
from memserver.storage import agents, collections, passages, sections
from memserver.storage.recall import RecallQuery

router = APIRouter(prefix="/agents/{agent_id}", tags=["memory"])

Query200 = Annotated[str, Query(min_length=1, max_length=1000, description="What to look for.")]
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


@router.post("/archival", status_code=201)
async def insert_passages(
    agent_id: UUID, new: PassagesIn, services: ServicesDep, tenant: TenantDep
) -> PassagesOut:
    """Insert passages, all or none.

    A text that is longer than what the embedding model reads becomes several passages, which say in their
    metadata which `part` of it they are.
    """
    texts = [
        PassageText(
            text=passage.text,
            tags=passage.tags,
            metadata=passage.metadata,
            created_at=passage.created_at,
        )
        for passage in new.passages
    ]
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
    texts = await services.archival.split(texts)
    vectors = await services.archival.embed([text.text for text in texts])
    async with services.database.tenant(tenant) as tx:
        stored = await services.archival.insert(tx, agent_id, texts, vectors)
    return PassagesOut(items=[PassageOut.read(passage) for passage in stored])


@router.get("/archival")
async def list_passages(
    agent_id: UUID,
    services: ServicesDep,
    tenant: TenantDep,
    after: Annotated[UUID | None, Query(description="The `next` of the page before.")] = None,
    limit: Limit = 50,
) -> PassagePage:
    """List passages, oldest first."""
    async with services.database.tenant(tenant) as tx:
        collection = await collections.own_of(tx, agent_id)
        found = await passages.list_page(tx, collection.id, after=after, limit=limit + 1)
    more = UUID(found[limit - 1].id) if len(found) > limit else None
    return PassagePage(items=[PassageOut.read(passage) for passage in found[:limit]], next=more)


@router.get("/archival/search")
async def search_archival(
    agent_id: UUID,
    services: ServicesDep,
    tenant: TenantDep,
    query: Query200,
    page: PageNumber = 1,
) -> ArchivalResults:
    """Search passages by meaning, best first."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
    text = clean(query)
    if not text.strip():
        raise InvalidInput("query: there is nothing to look for.")
    [vector] = await services.archival.embed([text])
    async with services.database.tenant(tenant) as tx:
        found = await services.archival.search(tx, agent_id, vector, Page(page))
    return ArchivalResults(
        items=[FoundPassageOut.of(hit) for hit in found.found],
        total=found.total,
        page=page,
        pages=found.page.pages(found.total),
    )


@router.delete("/archival/{passage_id}", status_code=204)
async def delete_passage(
    agent_id: UUID, passage_id: UUID, services: ServicesDep, tenant: TenantDep
) -> None:
    """Delete one passage."""
    async with services.database.tenant(tenant) as tx:
        collection = await collections.own_of(tx, agent_id)
        await passages.delete(tx, collection.id, passage_id)
