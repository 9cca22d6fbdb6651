"""Which sections an agent has, under which names and in which order.

A change of that holds the lock of the agent's state, and before it that of the section.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.storage.database import Transaction
from memserver.storage.missing import no_agent
from memserver.storage.rows import PageQuery, fetch_all, paginate
from memserver.storage.sections import RENEW_STATISTICS
from memserver.wire.sections import Reader


@dataclass(frozen=True, slots=True)
class Link:
    name: str
    section_id: UUID


async def lock(tx: Transaction, agent_id: UUID) -> list[Link]:
    """The agent's sections in their order; until the transaction ends nobody else changes which.

    Its memory statistics are renewed, as with any edit.
    """
    cursor = await tx.execute(
        f"UPDATE agent_state s SET {RENEW_STATISTICS} WHERE agent_id = %s", [agent_id]
    )
    if cursor.rowcount == 0:
        raise no_agent(agent_id)
    return await fetch_all(
        tx,
        Link,
        "SELECT name, section_id FROM agent_sections WHERE agent_id = %s ORDER BY place",
        [agent_id],
    )


async def insert(tx: Transaction, agent_id: UUID, link: Link, *, read_only: bool) -> None:
    """Give an agent a section, at the end of its order."""
    await tx.execute(
        """INSERT INTO agent_sections (agent_id, name, tenant, section_id, place, read_only)
           SELECT %(agent_id)s, %(name)s, s.tenant, s.id,
                  (SELECT coalesce(max(place), 0) + 1 FROM agent_sections
                   WHERE agent_id = %(agent_id)s), %(read_only)s
           FROM sections s WHERE s.id = %(section_id)s""",
        {
            "agent_id": agent_id,
            "name": link.name,
            "section_id": link.section_id,
            "read_only": read_only,
        },
    )


async def update(tx: Transaction, agent_id: UUID, link: Link, *, read_only: bool) -> None:
    await tx.execute(
        """UPDATE agent_sections SET name = %s, read_only = %s
           WHERE agent_id = %s AND section_id = %s""",
        [link.name, read_only, agent_id, link.section_id],
    )


async def arrange(tx: Transaction, agent_id: UUID, names: Sequence[str]) -> None:
    await tx.execute(
        """UPDATE agent_sections l SET place = o.place
           FROM unnest(%s::text[]) WITH ORDINALITY AS o (name, place)
           WHERE l.agent_id = %s AND l.name = o.name""",
        [list(names), agent_id],
    )


async def delete(tx: Transaction, agent_id: UUID, section_id: UUID) -> None:
    """Take a section from an agent; one that was made for an agent goes with its last reader."""
    await tx.execute(
        "DELETE FROM agent_sections WHERE agent_id = %s AND section_id = %s", [agent_id, section_id]
    )
    await delete_unread(tx, [section_id])


async def delete_unread(tx: Transaction, section_ids: Sequence[UUID]) -> None:
    """Delete those of the sections that were made for an agent and that no agent has."""
    await tx.execute(
        """DELETE FROM sections s WHERE id = ANY (%s) AND name IS NULL
           AND NOT EXISTS (SELECT 1 FROM agent_sections WHERE section_id = s.id)""",
        [list(section_ids)],
    )


async def readers_page(tx: Transaction, section_id: UUID, page: PageQuery) -> list[Reader]:
    return await paginate(
        tx,
        Reader,
        page,
        """SELECT l.agent_id, a.name AS agent_name, l.name AS section, l.read_only
           FROM agent_sections l JOIN agents a ON a.id = l.agent_id WHERE l.section_id = %(id)s""",
        {"id": section_id},
        by="l.agent_id",
    )
