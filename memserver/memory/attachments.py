"""Which sections an agent's working context has: its own, and those that it shares with others.

A section is locked before the agent, as in an edit.
"""

from dataclasses import dataclass, replace
from uuid import UUID

from memserver.errors import Conflict
from memserver.memory.working_context import check_limit
from memserver.messages import MemorySection
from memserver.storage import agent_sections, sections
from memserver.storage.agent_sections import Link
from memserver.storage.database import Transaction
from memserver.storage.sections import Editor, StoredSection

MOST_SECTIONS = 50  # sections of one agent


@dataclass(frozen=True, slots=True)
class Seat:
    """How an agent has a section; None leaves a thing as it is, or as it is for a new one."""

    name: str | None = None  # the agent's for it
    place: int | None = None  # in the agent's order, from 1; more than there are is the end
    read_only: bool | None = None  # the agent's tools can't edit it


async def add(
    tx: Transaction, tenant: str, agent_id: UUID, section: MemorySection, place: int | None
) -> StoredSection:
    """Give an agent a new section of its own, at this place or at the end."""
    check_limit(section)
    links = await agent_sections.lock(tx, agent_id)
    _check_new(links, section.name)
    editor = Editor("api", agent_id)
    made = await sections.insert(tx, tenant, section, editor, by_itself=False)
    new = Link(section.name, made)
    await agent_sections.insert(tx, agent_id, new, read_only=section.read_only)
    await _move(tx, agent_id, [*links, new], new, place)
    return await sections.read_of(tx, agent_id, section.name)


async def attach(
    tx: Transaction, agent_id: UUID, section_id: UUID, name: str, seat: Seat
) -> StoredSection:
    """Let an agent have a section that exists, under this name; if it has it so, change its seat."""
    stored = await sections.lock(tx, section_id)
    links = await agent_sections.lock(tx, agent_id)
    new = Link(name, stored.id)
    if new not in links:
        _check_new(links, name)
        for link in links:
            if link.section_id == stored.id:
                raise Conflict(
                    f"The agent has this section already, as {link.name!r}.",
                    hint="PATCH it with another name to rename it.",
                )
        await agent_sections.insert(tx, agent_id, new, read_only=seat.read_only or False)
        links.append(new)
    elif seat.read_only is not None:
        await agent_sections.update(tx, agent_id, new, read_only=seat.read_only)
    await _move(tx, agent_id, links, new, seat.place)
    return await sections.read_of(tx, agent_id, name)


async def reseat(
    tx: Transaction, agent_id: UUID, stored: StoredSection, seat: Seat
) -> StoredSection:
    if seat == Seat():
        return stored
    old = stored.section
    read_only = old.read_only if seat.read_only is None else seat.read_only
    new = Link(seat.name or old.name, stored.id)
    links = await agent_sections.lock(tx, agent_id)
    if new.name != old.name:
        _check_name(links, new.name)
    await agent_sections.update(tx, agent_id, new, read_only=read_only)
    renamed = [new if link.section_id == new.section_id else link for link in links]
    await _move(tx, agent_id, renamed, new, seat.place)
    return replace(stored, section=replace(old, name=new.name, read_only=read_only))


async def detach(tx: Transaction, agent_id: UUID, name: str) -> None:
    """Take a section from an agent; one that was made for it alone is deleted with its history."""
    stored = await sections.lock_of(tx, agent_id, name)
    await agent_sections.lock(tx, agent_id)
    await agent_sections.delete(tx, agent_id, stored.id)


async def delete(tx: Transaction, section_id: UUID) -> None:
    stored = await sections.lock(tx, section_id)
    if stored.readers:
        raise Conflict(
            f"The section is in the working context of {stored.readers} agent(s).",
            hint=f"GET /v1/sections/{section_id}/readers lists them; detach it there first.",
        )
    await sections.delete(tx, section_id)


def _check_new(links: list[Link], name: str) -> None:
    _check_name(links, name)
    if len(links) >= MOST_SECTIONS:
        raise Conflict(f"The agent has {MOST_SECTIONS} sections; there can't be more.")


def _check_name(links: list[Link], name: str) -> None:
    if any(link.name == name for link in links):
        raise Conflict(f"The agent has a section {name!r} already.", hint="Choose another name.")


async def _move(
    tx: Transaction, agent_id: UUID, links: list[Link], moved: Link, place: int | None
) -> None:
    if place is None:
        return
    names = [link.name for link in links if link.section_id != moved.section_id]
    names.insert(place - 1, moved.name)
    await agent_sections.arrange(tx, agent_id, names)
