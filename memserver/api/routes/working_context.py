"""An agent's working context from outside: its sections, in their order, and their history."""

from typing import Annotated

from fastapi import Depends, Path

from memserver import messages
from memserver.api.dependencies import (
    AgentId,
    BeginDep,
    Listing,
    NewestFirst,
    ServicesDep,
    TenantDep,
)
from memserver.api.json_body import Router
from memserver.api.schemas.agents import SectionName
from memserver.api.schemas.answers import section_version
from memserver.api.schemas.sections import (
    NEWEST,
    AgentSectionEdit,
    AgentSectionIn,
    Attachment,
    Restore,
    SectionEdit,
    Undo,
)
from memserver.memory import attachments, working_context
from memserver.memory.attachments import Seat
from memserver.memory.working_context import Rewrite, check_version
from memserver.storage import agents, sections
from memserver.storage.sections import Editor
from memserver.text import clean
from memserver.wire.base import Page
from memserver.wire.sections import Section, SectionVersion, WorkingContext

router = Router(prefix="/agents/{agent}/working-context", tags=["working context"])


def _name(section: str) -> str:
    return clean(section)


Named = Annotated[str, Depends(_name)]


@router.get("")
async def get_working_context(agent_id: AgentId, begin: BeginDep) -> WorkingContext:
    """The sections of the working context."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        found = await sections.read_all(tx, agent_id)
    return WorkingContext(sections=[Section.model_validate(stored) for stored in found])


@router.post("", status_code=201)
async def add_section(
    agent_id: AgentId, new: AgentSectionIn, services: ServicesDep, tenant: TenantDep
) -> Section:
    """Add a section of the agent's own."""
    section = messages.MemorySection(new.name, new.text, new.limit, new.description)
    async with services.database.tenant(tenant) as tx:
        added = await attachments.add(tx, tenant, agent_id, section, new.place)
    return Section.model_validate(added)


@router.get("/{section}")
async def get_section(agent_id: AgentId, section: Named, begin: BeginDep) -> Section:
    """One section."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        return Section.model_validate(await sections.read_of(tx, agent_id, section))


@router.put("/{section}")
async def attach_section(
    agent_id: AgentId,
    section: Annotated[SectionName, Path()],
    attachment: Attachment,
    begin: BeginDep,
) -> Section:
    """Attach a section that exists, another agent's or one by itself, under this name."""
    seat = Seat(place=attachment.place, read_only=attachment.read_only)
    async with begin() as tx:
        attached = await attachments.attach(tx, agent_id, attachment.section_id, section, seat)
    return Section.model_validate(attached)


@router.patch("/{section}")
async def edit_section(
    agent_id: AgentId, section: Named, edit: AgentSectionEdit, begin: BeginDep
) -> Section:
    """Give a section a new text, limit, name or place. A running turn sees it at its next step."""
    seat = Seat(name=edit.name, place=edit.place, read_only=edit.read_only)
    async with begin() as tx:
        await agents.get(tx, agent_id)
        stored = await sections.lock_of(tx, agent_id, section)
        check_version(stored, edit.expected_version)
        edited = await working_context.rewrite(
            tx, stored, rewrite_of(edit), Editor("api", agent_id)
        )
        return Section.model_validate(await attachments.reseat(tx, agent_id, edited, seat))


@router.delete("/{section}", status_code=204)
async def detach_section(agent_id: AgentId, section: Named, begin: BeginDep) -> None:
    """Take a section from the agent. One made for it, and that no other agent has, is deleted."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        await attachments.detach(tx, agent_id, section)


@router.get("/{section}/history")
async def get_history(
    agent_id: AgentId, section: Named, begin: BeginDep, listing: NewestFirst
) -> Page[SectionVersion, int]:
    """List every version of a section's text, with who wrote it."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        stored = await sections.read_of(tx, agent_id, section)
        found = await sections.history_page(tx, stored.id, listing.query)
    return history_of(found, listing)


@router.post("/{section}/undo")
async def undo_edit(
    agent_id: AgentId, section: Named, begin: BeginDep, undo: Undo = NEWEST
) -> Section:
    """Take the text of the version before; that is an edit too, and can be undone."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        stored = await sections.lock_of(tx, agent_id, section)
        check_version(stored, undo.expected_version)
        undone = await working_context.undo(tx, stored, Editor("api", agent_id))
    return Section.model_validate(undone)


@router.post("/{section}/restore")
async def restore_version(
    agent_id: AgentId, section: Named, restore: Restore, begin: BeginDep
) -> Section:
    """Take the text of an older version; that is an edit too, and can be undone."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        stored = await sections.lock_of(tx, agent_id, section)
        check_version(stored, restore.expected_version)
        editor = Editor("api", agent_id)
        restored = await working_context.restore(tx, stored, restore.version, editor)
    return Section.model_validate(restored)


def rewrite_of(edit: SectionEdit) -> Rewrite:
    """What an edit changes of the section itself."""
    return Rewrite(edit.text, edit.limit, edit.description)


def history_of(found: list[sections.Edit], listing: Listing) -> Page[SectionVersion, int]:
    """What was found as a page."""
    items, more = listing.split(found, lambda edit: edit.version)
    return Page[SectionVersion, int](items=[section_version(edit) for edit in items], next=more)
