"""Sections by themselves: made for no agent in particular, for as many as one likes."""

from typing import Annotated
from uuid import UUID

from fastapi import Query

from memserver import messages
from memserver.api.dependencies import BeginDep, ById, NewestFirst, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.routes.working_context import history_of, rewrite_of
from memserver.api.schemas.sections import (
    NEWEST,
    Restore,
    SectionByItselfEdit,
    SectionByItselfIn,
    Undo,
)
from memserver.memory import attachments, working_context
from memserver.memory.working_context import check_limit, check_version
from memserver.storage import agent_sections, sections
from memserver.storage.sections import Editor
from memserver.text import clean
from memserver.wire.base import Page
from memserver.wire.sections import Reader, SectionByItself, SectionVersion

router = Router(prefix="/sections", tags=["sections"])
BY_API = Editor("api")


@router.post("", status_code=201)
async def create_section(
    new: SectionByItselfIn, services: ServicesDep, tenant: TenantDep
) -> SectionByItself:
    """Create a section that no agent has yet; it stays until it is deleted."""
    section = messages.MemorySection(new.name, new.text, new.limit, new.description)
    check_limit(section)
    async with services.database.tenant(tenant) as tx:
        made = await sections.insert(tx, tenant, section, BY_API, by_itself=True)
        return SectionByItself.model_validate(await sections.read(tx, made))


@router.get("")
async def list_sections(
    begin: BeginDep,
    listing: ById,
    name: Annotated[str | None, Query(max_length=200, description="Only these.")] = None,
) -> Page[SectionByItself, UUID]:
    """List the sections that have a name of their own."""
    async with begin() as tx:
        found = await sections.list_page(tx, listing.query, name=clean(name) if name else None)
    return listing.page(Page[SectionByItself, UUID], found, lambda stored: stored.id)


@router.get("/{section_id}")
async def get_section_by_id(section_id: UUID, begin: BeginDep) -> SectionByItself:
    """One section, of whomever it is."""
    async with begin() as tx:
        return SectionByItself.model_validate(await sections.read(tx, section_id))


@router.patch("/{section_id}")
async def edit_section_by_id(
    section_id: UUID, edit: SectionByItselfEdit, begin: BeginDep
) -> SectionByItself:
    """Give a section a new text, limit, description or name. Every agent that has it sees it next."""
    async with begin() as tx:
        stored = await sections.lock(tx, section_id)
        check_version(stored, edit.expected_version)
        edited = await working_context.rewrite(tx, stored, rewrite_of(edit), BY_API)
        if edit.name is not None:
            edited = await sections.rename(tx, edited, edit.name)
    return SectionByItself.model_validate(edited)


@router.delete("/{section_id}", status_code=204)
async def delete_section(section_id: UUID, begin: BeginDep) -> None:
    """Delete a section with its history; refused while an agent has it."""
    async with begin() as tx:
        await attachments.delete(tx, section_id)


@router.get("/{section_id}/readers")
async def list_readers(section_id: UUID, begin: BeginDep, listing: ById) -> Page[Reader, UUID]:
    """The agents that have a section, and under which name."""
    async with begin() as tx:
        await sections.read(tx, section_id)
        found = await agent_sections.readers_page(tx, section_id, listing.query)
    return listing.page(Page[Reader, UUID], found, lambda reader: reader.agent_id)


@router.get("/{section_id}/history")
async def get_history_by_id(
    section_id: UUID, begin: BeginDep, listing: NewestFirst
) -> Page[SectionVersion, int]:
    """List every version of a section's text, with who wrote it."""
    async with begin() as tx:
        await sections.read(tx, section_id)
        found = await sections.history_page(tx, section_id, listing.query)
    return history_of(found, listing)


@router.post("/{section_id}/undo")
async def undo_edit_by_id(
    section_id: UUID, begin: BeginDep, undo: Undo = NEWEST
) -> SectionByItself:
    """Take the text of the version before; that is an edit too, and can be undone."""
    async with begin() as tx:
        stored = await sections.lock(tx, section_id)
        check_version(stored, undo.expected_version)
        return SectionByItself.model_validate(await working_context.undo(tx, stored, BY_API))


@router.post("/{section_id}/restore")
async def restore_version_by_id(
    section_id: UUID, restore: Restore, begin: BeginDep
) -> SectionByItself:
    """Take the text of an older version; that is an edit too, and can be undone."""
    async with begin() as tx:
        stored = await sections.lock(tx, section_id)
        check_version(stored, restore.expected_version)
        return SectionByItself.model_validate(
            await working_context.restore(tx, stored, restore.version, BY_API)
        )
