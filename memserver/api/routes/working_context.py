"""An agent's working context from outside: its sections, in their order, and their history."""

from typing import Annotated

from fastapi import Depends, Path

from memserver.api.dependencies import AgentId, Listing, NewestFirst, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.agents import SectionName
from memserver.api.schemas.sections import (
    NEWEST,
    AgentSectionEdit,
    AgentSectionIn,
    AgentSectionOut,
    Attachment,
    EditOut,
    History,
    Restore,
    SectionEdit,
    Undo,
    WorkingContext,
)
from memserver.memory import attachments, working_context
from memserver.memory.attachments import Seat
from memserver.memory.working_context import Rewrite, check_version
from memserver.messages import Section
from memserver.storage import agents, sections
from memserver.storage.sections import Editor
from memserver.text import clean

router = Router(prefix="/agents/{agent}/working-context", tags=["working context"])


def _name(section: str) -> str:
    return clean(section)


Named = Annotated[str, Depends(_name)]


@router.get("")
async def get_working_context(
    agent_id: AgentId, services: ServicesDep, tenant: TenantDep
) -> WorkingContext:
    """The sections of the working context."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        found = await sections.read_all(tx, agent_id)
    return WorkingContext(sections=[AgentSectionOut.read(stored) for stored in found])


@router.post("", status_code=201)
async def add_section(
    agent_id: AgentId, new: AgentSectionIn, services: ServicesDep, tenant: TenantDep
) -> AgentSectionOut:
    """Add a section of the agent's own."""
    section = Section(new.name, new.text, new.limit, new.description)
    async with services.database.tenant(tenant) as tx:
        added = await attachments.add(tx, tenant, agent_id, section, new.place)
    return AgentSectionOut.read(added)


@router.get("/{section}")
async def get_section(
    agent_id: AgentId, section: Named, services: ServicesDep, tenant: TenantDep
) -> AgentSectionOut:
    """One section."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        return AgentSectionOut.read(await sections.read_of(tx, agent_id, section))


@router.put("/{section}")
async def attach_section(
    agent_id: AgentId,
    section: Annotated[SectionName, Path()],
    attachment: Attachment,
    services: ServicesDep,
    tenant: TenantDep,
) -> AgentSectionOut:
    """Attach a section that exists, another agent's or one by itself, under this name."""
    seat = Seat(place=attachment.place, read_only=attachment.read_only)
    async with services.database.tenant(tenant) as tx:
        attached = await attachments.attach(tx, agent_id, attachment.section_id, section, seat)
    return AgentSectionOut.read(attached)


@router.patch("/{section}")
async def edit_section(
    agent_id: AgentId,
    section: Named,
    edit: AgentSectionEdit,
    services: ServicesDep,
    tenant: TenantDep,
) -> AgentSectionOut:
    """Give a section a new text, limit, name or place. A running turn sees it at its next step."""
    seat = Seat(name=edit.name, place=edit.place, read_only=edit.read_only)
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        stored = await sections.lock_of(tx, agent_id, section)
        check_version(stored, edit.expected_version)
        edited = await working_context.rewrite(
            tx, stored, rewrite_of(edit), Editor("api", agent_id)
        )
        return AgentSectionOut.read(await attachments.reseat(tx, agent_id, edited, seat))


@router.delete("/{section}", status_code=204)
async def detach_section(
    agent_id: AgentId, section: Named, services: ServicesDep, tenant: TenantDep
) -> None:
    """Take a section from the agent. One made for it, and that no other agent has, is deleted."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        await attachments.detach(tx, agent_id, section)


@router.get("/{section}/history")
async def get_history(
    agent_id: AgentId,
    section: Named,
    services: ServicesDep,
    tenant: TenantDep,
    listing: NewestFirst,
) -> History:
    """List every version of a section's text, with who wrote it."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        stored = await sections.read_of(tx, agent_id, section)
        found = await sections.history_page(tx, stored.id, listing.query)
    return history_of(found, listing)


@router.post("/{section}/undo")
async def undo_edit(
    agent_id: AgentId, section: Named, services: ServicesDep, tenant: TenantDep, undo: Undo = NEWEST
) -> AgentSectionOut:
    """Take the text of the version before; that is an edit too, and can be undone."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        stored = await sections.lock_of(tx, agent_id, section)
        check_version(stored, undo.expected_version)
        undone = await working_context.undo(tx, stored, Editor("api", agent_id))
    return AgentSectionOut.read(undone)


@router.post("/{section}/restore")
async def restore_version(
    agent_id: AgentId, section: Named, restore: Restore, services: ServicesDep, tenant: TenantDep
) -> AgentSectionOut:
    """Take the text of an older version; that is an edit too, and can be undone."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        stored = await sections.lock_of(tx, agent_id, section)
        check_version(stored, restore.expected_version)
        editor = Editor("api", agent_id)
        restored = await working_context.restore(tx, stored, restore.version, editor)
    return AgentSectionOut.read(restored)


def rewrite_of(edit: SectionEdit) -> Rewrite:
    """What an edit changes of the section itself."""
    return Rewrite(edit.text, edit.limit, edit.description)


def history_of(found: list[sections.Edit], listing: Listing) -> History:
    """What was found as a page."""
    items, more = listing.split(found, lambda edit: edit.version)
    return History(items=[EditOut.read(edit) for edit in items], next=more)
