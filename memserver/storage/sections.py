"""The working context's sections, each edit kept with who made it."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from memserver.errors import NotFound
from memserver.messages import Section
from memserver.storage.database import Transaction

Actor = Literal["tool", "api", "import"]


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section with what identifies it."""

    id: UUID
    section: Section


_SELECT = """SELECT x.id, l.name, x.content, x.character_limit, x.description
    FROM agent_sections l JOIN sections x ON x.id = l.section_id WHERE l.agent_id = %s"""


async def read_all(tx: Transaction, agent_id: UUID) -> list[Section]:
    """An agent's sections in their order."""
    cursor = await tx.execute(_SELECT + " ORDER BY l.place", [agent_id])
    return [_section(row) for row in await cursor.fetchall()]


async def lock(tx: Transaction, agent_id: UUID, name: str) -> StoredSection:
    """Read a section for an edit; until the transaction ends nobody else edits it.

    Raises:
        NotFound: the agent has no section of that name; the message lists those it has.
    """
    cursor = await tx.execute(_SELECT + " AND l.name = %s FOR NO KEY UPDATE OF x", [agent_id, name])
    row = await cursor.fetchone()
    if row is None:
        names = ", ".join(section.name for section in await read_all(tx, agent_id)) or "none"
        raise NotFound(f"The working context has no section {name!r}; there are: {names}.")
    return StoredSection(row["id"], _section(row))


async def write(tx: Transaction, agent_id: UUID, section_id: UUID, text: str, actor: Actor) -> None:
    """Store a section's new text, its history entry, and the agent's renewed memory statistics."""
    await tx.execute(
        """WITH edited AS (
               UPDATE sections SET content = %(text)s, version = version + 1, updated_at = now()
               WHERE id = %(section_id)s RETURNING id, tenant, version
           ), noted AS (
               INSERT INTO section_edits (section_id, version, tenant, content, actor, agent_id)
               SELECT id, version, tenant, %(text)s, %(actor)s, %(agent_id)s FROM edited
           )
           UPDATE agent_state SET memory_edited_at = now(), stats_edited_at = now(),
               stats_messages = message_count
           WHERE agent_id = %(agent_id)s""",
        {"text": text, "section_id": section_id, "actor": actor, "agent_id": agent_id},
    )


async def set_limit(tx: Transaction, section_id: UUID, limit: int) -> None:
    """Change how many characters a section holds."""
    await tx.execute("UPDATE sections SET character_limit = %s WHERE id = %s", [limit, section_id])


def _section(row: dict[str, object]) -> Section:
    return Section(
        name=str(row["name"]),
        text=str(row["content"]),
        limit=int(str(row["character_limit"])),
        description=str(row["description"]),
    )
