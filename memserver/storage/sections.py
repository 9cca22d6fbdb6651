"""The working context's sections: their text, each edit kept with who made it.

Leaves which agents have them to `agent_sections`. A section is edited under its lock, which is taken
before that of any agent's state.
"""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal
from uuid import UUID

from memserver.errors import NotFound
from memserver.messages import MemorySection
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.rows import (
    PageQuery,
    fetch_all,
    fetch_one,
    fetch_optional,
    fetch_value,
    paginate,
)

Actor = Literal["tool", "api", "import"]


@dataclass(frozen=True, slots=True)
class Editor:
    actor: Actor  # by which way it comes
    # Whose tool it is, or through which agent the API was called; None is no agent's
    agent_id: UUID | None = None
    position: int | None = None  # of the tool's call in the agent's history


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section with what identifies it, as an agent has it or as it is by itself."""

    id: UUID  # the same for all agents that have it
    section: (
        MemorySection  # its name is the agent's for it, or its own; empty if it has none of its own
    )
    version: int  # of the text; 1 is the first
    readers: int  # how many agents have it
    updated_at: datetime  # when it last changed


@dataclass(frozen=True, slots=True)
class Edit:
    """One version of a section's text; `restores` is the older version whose text it took."""

    version: int
    text: str
    editor: Editor
    restores: int | None
    created_at: datetime


RENEW_STATISTICS = """memory_edited_at = now(), stats_edited_at = now(),
    stats_messages = s.message_count"""
"""What an edit sets in the row `s` of agent_state."""
_COLUMNS = """x.id, x.content AS text, x.character_limit AS limit, x.description, x.version, x.updated_at,
    (SELECT count(*) FROM agent_sections r WHERE r.section_id = x.id) AS readers"""
_OF_AGENT = f"""SELECT {_COLUMNS}, l.name, l.read_only
    FROM agent_sections l JOIN sections x ON x.id = l.section_id WHERE l.agent_id = %s"""
_BY_ITSELF = f"SELECT {_COLUMNS}, coalesce(x.name, '') AS name, false AS read_only FROM sections x"


async def read_all(tx: Transaction, agent_id: UUID) -> list[StoredSection]:
    return await fetch_all(tx, _stored, _OF_AGENT + " ORDER BY l.place", [agent_id])


async def read_of(tx: Transaction, agent_id: UUID, name: str) -> StoredSection:
    """The section that an agent has under this name. Raises NotFound, which lists those it has."""
    found = await fetch_optional(tx, _stored, _OF_AGENT + " AND l.name = %s", [agent_id, name])
    if found is None:
        raise await _unknown(tx, agent_id, name)
    return found


async def read(tx: Transaction, section_id: UUID) -> StoredSection:
    missing = NotFound(f"There is no section {section_id}.", hint="GET /v1/sections lists yours.")
    return await fetch_one(tx, _stored, _BY_ITSELF + " WHERE x.id = %s", [section_id], missing)


async def lock_of(tx: Transaction, agent_id: UUID, name: str) -> StoredSection:
    """Read an agent's section for an edit; until the transaction ends nobody else edits it."""
    query = """SELECT x.id FROM agent_sections l JOIN sections x ON x.id = l.section_id
               WHERE l.agent_id = %s AND l.name = %s FOR NO KEY UPDATE OF x"""
    locked = await fetch_value(tx, query, [agent_id, name])
    # Read it only now: who waited for the lock has seen what was before.
    found = await read_of(tx, agent_id, name)
    if found.id != locked:
        raise await _unknown(tx, agent_id, name)
    return found


async def lock(tx: Transaction, section_id: UUID) -> StoredSection:
    """Read a section by itself for an edit; until the transaction ends nobody else edits it."""
    await tx.execute("SELECT 1 FROM sections WHERE id = %s FOR NO KEY UPDATE", [section_id])
    return await read(tx, section_id)


async def write(
    tx: Transaction,
    stored: StoredSection,
    new: MemorySection,
    editor: Editor,
    *,
    restores: int | None = None,
) -> StoredSection:
    """Store a locked section's text, limit and description.

    Another text is a new version in the history, and renews the memory statistics of every agent that
    has the section: their prompts change with it anyway.
    """
    return await fetch_one(
        tx,
        partial(replace, stored, section=new),
        f"""WITH edited AS (
               UPDATE sections SET content = %(text)s, character_limit = %(limit)s,
                   description = %(description)s, version = version + %(another)s::integer,
                   updated_at = now()
               WHERE id = %(id)s RETURNING id, tenant, version, updated_at
           ), noted AS (
               INSERT INTO section_edits
                   (section_id, version, tenant, content, actor, agent_id, position, restores)
               SELECT id, version, tenant, %(text)s, %(actor)s, %(agent_id)s, %(position)s,
                      %(restores)s
               FROM edited WHERE %(another)s = 1
           ), readers AS (
               SELECT s.agent_id FROM agent_sections l JOIN agent_state s ON s.agent_id = l.agent_id
               WHERE l.section_id = %(id)s AND %(another)s = 1
               ORDER BY s.agent_id FOR NO KEY UPDATE OF s
           ), renewed AS (
               UPDATE agent_state s SET {RENEW_STATISTICS}
               FROM readers WHERE s.agent_id = readers.agent_id
           )
           SELECT version, updated_at FROM edited""",
        {
            **asdict(new),
            "id": stored.id,
            "another": int(new.text != stored.section.text),
            "restores": restores,
            **asdict(editor),
        },
    )


async def insert(
    tx: Transaction, tenant: str, section: MemorySection, editor: Editor, *, by_itself: bool
) -> UUID:
    """Store a new section with the first entry of its history; no agent has it yet.

    A section `by_itself` keeps its name, and stays until it is deleted.
    """
    made = new_id()
    await tx.execute(
        """WITH made AS (
               INSERT INTO sections (id, tenant, name, content, character_limit, description)
               VALUES (%(id)s, %(tenant)s, %(name)s, %(text)s, %(limit)s, %(description)s)
           )
           INSERT INTO section_edits
               (section_id, version, tenant, content, actor, agent_id, position)
           VALUES (%(id)s, 1, %(tenant)s, %(text)s, %(actor)s, %(agent_id)s, %(position)s)""",
        {
            "id": made,
            "tenant": tenant,
            **asdict(section),
            "name": section.name if by_itself else None,
            **asdict(editor),
        },
    )
    return made


async def rename(tx: Transaction, stored: StoredSection, name: str) -> StoredSection:
    """Give a locked section a name of its own; agents that have it keep theirs."""
    await tx.execute(
        "UPDATE sections SET name = %s, updated_at = now() WHERE id = %s", [name, stored.id]
    )
    return await read(tx, stored.id)


async def delete(tx: Transaction, section_id: UUID) -> None:
    """Delete a locked section that no agent has, with its history."""
    await tx.execute("DELETE FROM sections WHERE id = %s", [section_id])


async def list_page(
    tx: Transaction, page: PageQuery, *, name: str | None = None
) -> list[StoredSection]:
    query = f"""{_BY_ITSELF} WHERE x.name IS NOT NULL
                AND (%(name)s::text IS NULL OR x.name = %(name)s)"""
    return await paginate(tx, _stored, page, query, {"name": name}, by="x.id")


async def history_page(tx: Transaction, section_id: UUID, page: PageQuery) -> list[Edit]:
    query = """SELECT version, content AS text, actor, agent_id, position, restores, created_at
               FROM section_edits WHERE section_id = %(id)s"""
    return await paginate(tx, _edit, page, query, {"id": section_id}, by="version")


async def version(tx: Transaction, section_id: UUID, number: int) -> Edit:
    found = await history_page(tx, section_id, PageQuery(1, number - 1))
    if not found or found[0].version != number:
        raise NotFound(
            f"The section has no version {number}.", hint="Its history (GET …/history) lists them."
        )
    return found[0]


async def _unknown(tx: Transaction, agent_id: UUID, name: str) -> NotFound:
    names = ", ".join(each.section.name for each in await read_all(tx, agent_id)) or "none"
    return NotFound(
        f"The working context has no section {name!r}; there are: {names}.",
        hint="Take one of these, or add it: POST /v1/agents/{agent}/working-context.",
    )


def _stored(
    id: UUID,
    version: int,
    readers: int,
    updated_at: datetime,
    **section: Any,  # noqa: ANN401 - of the row
) -> StoredSection:
    return StoredSection(id, MemorySection(**section), version, readers, updated_at)


def _edit(
    actor: Actor,
    agent_id: UUID | None,
    position: int | None,
    **version: Any,  # noqa: ANN401 - of the row
) -> Edit:
    return Edit(editor=Editor(actor, agent_id, position), **version)
