"""Agents: their row, their state and the sections they start with."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memserver.errors import Conflict, NotFound
from memserver.messages import JsonObject, MemorySection
from memserver.storage import agent_sections, collections, pictures
from memserver.storage.cancellation import notify_stop
from memserver.storage.collections import AUTO
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.missing import no_agent, refuse_taken_name
from memserver.storage.rows import (
    PageQuery,
    Table,
    fetch_all,
    fetch_one,
    fetch_optional,
    fetch_value,
    fetch_values,
    paginate,
)
from memserver.storage.watched import allow_long_statements


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent as it is stored; `options` are its own settings, checked where they are used.

    `language` is its own collection's, `message_count` what recall storage holds of it; a turn, which doesn't
    need them, leaves them out.
    """

    id: UUID
    tenant: str
    name: str
    model: str | None
    system_prompt: str | None
    options: JsonObject
    metadata: JsonObject
    collection_id: UUID
    created_at: datetime
    updated_at: datetime
    message_count: int = 0
    language: str = AUTO


@dataclass(frozen=True, slots=True)
class NewAgent:
    name: str
    sections: Sequence[MemorySection]
    embedding_model: str
    dimension: int
    model: str | None = None
    system_prompt: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    language: str = AUTO


_COLUMNS = """id, tenant, name, model, system_prompt, options, metadata, collection_id, created_at, updated_at,
    coalesce((SELECT s.message_count FROM agent_state s WHERE s.agent_id = agents.id), 0) AS message_count,
    coalesce((SELECT c.language FROM collections c WHERE c.id = agents.collection_id), 'auto') AS language"""
# The statement that fills `sections` and `agent_sections` from three parallel arrays.
_CREATE = f"""
WITH collection AS (
    INSERT INTO collections (id, tenant, name, own, language, embedding_model, dimension, vectors_table)
    VALUES (%(collection_id)s, %(tenant)s, %(name)s, true, %(language)s, %(embedding_model)s, %(dimension)s,
            vectors_table(%(embedding_model)s, %(dimension)s))
), agent AS (
    INSERT INTO agents
        (id, tenant, name, model, system_prompt, options, metadata, collection_id)
    VALUES (%(id)s, %(tenant)s, %(name)s, %(model)s, %(system_prompt)s, %(options)s, %(metadata)s,
            %(collection_id)s)
    RETURNING {_COLUMNS}
), state AS (
    INSERT INTO agent_state (agent_id, tenant) VALUES (%(id)s, %(tenant)s)
), given AS (
    SELECT * FROM unnest(%(section_ids)s::uuid[], %(names)s::text[], %(texts)b::text[],
        %(limits)s::integer[], %(descriptions)s::text[])
        WITH ORDINALITY AS s (section_id, name, content, character_limit, description, place)
), section AS (
    INSERT INTO sections (id, tenant, content, character_limit, description)
    SELECT section_id, %(tenant)s, content, character_limit, description FROM given
), linked AS (
    INSERT INTO agent_sections (agent_id, name, tenant, section_id, place)
    SELECT %(id)s, name, %(tenant)s, section_id, place FROM given
), history AS (
    INSERT INTO section_edits (section_id, version, tenant, content, actor, agent_id)
    SELECT section_id, 1, %(tenant)s, content, 'api', %(id)s FROM given
)
SELECT * FROM agent
"""


async def create(tx: Transaction, tenant: str, new: NewAgent) -> AgentRow:
    """Create an agent with its own collection and sections. Raises Conflict, or InvalidInput for a language."""
    if new.language != AUTO:
        await collections.check_language(tx, new.language)
    sections = list(new.sections)
    parameters = {
        "id": new_id(),
        "collection_id": new_id(),
        "tenant": tenant,
        "name": new.name,
        "model": new.model,
        "system_prompt": new.system_prompt,
        "options": Jsonb(dict(new.options)),
        "metadata": Jsonb(dict(new.metadata)),
        "language": new.language,
        "embedding_model": new.embedding_model,
        "dimension": new.dimension,
        "section_ids": [new_id() for _ in sections],
        "names": [section.name for section in sections],
        "texts": [section.text for section in sections],
        "limits": [section.limit for section in sections],
        "descriptions": [section.description for section in sections],
    }
    with refuse_taken_name("an agent", new.name):
        agent = await fetch_one(tx, AgentRow, _CREATE, parameters)
    return replace(agent, language=new.language)


_TABLE = Table(AgentRow, "agents", _COLUMNS, no_agent)
get, id_of, list_page = _TABLE.get, _TABLE.id_of, _TABLE.list_page


async def search_page(tx: Transaction, page: PageQuery, part: str) -> list[AgentRow]:
    """A page of the agents whose names hold a text, upper and lower case alike, in the order of creation."""
    query = f"SELECT {_COLUMNS} FROM agents WHERE strpos(lower(name), lower(%(part)s)) > 0"
    return await paginate(tx, AgentRow, page, query, {"part": part}, by="id")


async def templates_page(tx: Transaction, page: PageQuery) -> list[AgentRow]:
    """A page of the agents that were not made for a user of another's, oldest first."""
    query = f"SELECT {_COLUMNS} FROM agents WHERE template_id IS NULL"
    return await paginate(tx, AgentRow, page, query, {}, by="id")


async def find(tx: Transaction, named: str) -> AgentRow:
    """The agent of this id or name; the id counts where both fit."""
    with suppress(ValueError, NotFound):
        return await get(tx, UUID(named))
    query = f"SELECT {_COLUMNS} FROM agents WHERE name = %s"
    return await fetch_one(tx, AgentRow, query, [named], no_agent(named))


async def of_user(tx: Transaction, template_id: UUID, user: str) -> AgentRow | None:
    """The agent that was made of a template for one of its users."""
    query = f"SELECT {_COLUMNS} FROM agents WHERE template_id = %s AND template_user = %s"
    return await fetch_optional(tx, AgentRow, query, [template_id, user])


async def make_for_user(
    tx: Transaction, template: AgentRow, user: str, name: str, *, at_most: int
) -> AgentRow:
    """Make an agent of a template: with its settings, tools and collections, and sections as the template's are now.

    Read-only sections are shared with the template, of the others the new agent has its own. Messages and the
    template's own passages are not copied.

    Raises:
        Conflict: the name is taken, or the template has so many agents already.
        NotFound: the template was deleted.
    """
    for lock in _LOCKS:
        await tx.execute(lock, [template.id])
    await _TABLE.lock(tx, template.id)  # two requests of one user make one agent
    if (made := await of_user(tx, template.id, user)) is not None:
        return made
    query = "SELECT count(*) FROM agents WHERE template_id = %s"
    if await fetch_value(tx, query, [template.id]) >= at_most:
        raise Conflict(
            f"The agent {template.name!r} has agents for {at_most:,} users: no more are made.",
            hint="Delete some, or raise MEMSERVER_AGENTS_PER_TEMPLATE.",
        )
    own = await collections.own_of(tx, template.id)
    sections = await fetch_all(tx, MemorySection, _OWN_SECTIONS, [template.id])
    agent = await create(
        tx,
        template.tenant,
        NewAgent(
            name=name,
            sections=sections,
            embedding_model=own.embedding_model,
            dimension=own.dimension,
            model=template.model,
            system_prompt=template.system_prompt,
            options=template.options,
            metadata=template.metadata,
            language=template.language,
        ),
    )
    both = {"made": agent.id, "template": template.id, "user": user}
    for statement in _SHARED:
        await tx.execute(statement, both)
    return agent


_OWN_SECTIONS = """
SELECT l.name, x.content AS text, x.character_limit AS limit, x.description, l.read_only
FROM agent_sections l JOIN sections x ON x.id = l.section_id
WHERE l.agent_id = %s AND NOT l.read_only ORDER BY l.place
"""
_LOCKS = (
    b"""SELECT 1 FROM agent_sections l JOIN sections x ON x.id = l.section_id
       WHERE l.agent_id = %s AND l.read_only ORDER BY x.id FOR KEY SHARE OF x""",
    b"""SELECT 1 FROM agent_collections l JOIN collections c ON c.id = l.collection_id
       WHERE l.agent_id = %s ORDER BY c.id FOR KEY SHARE OF c""",
)
_SHARED = (
    b"UPDATE agents SET template_id = %(template)s, template_user = %(user)s WHERE id = %(made)s",
    # Their places stay between those of the copies.
    b"""INSERT INTO agent_sections (agent_id, name, tenant, section_id, place, read_only)
       SELECT %(made)s, name, tenant, section_id, 1000 + place, true FROM agent_sections
       WHERE agent_id = %(template)s AND read_only""",
    b"""UPDATE agent_sections m SET place = t.place FROM agent_sections t
       WHERE m.agent_id = %(made)s AND t.agent_id = %(template)s AND t.name = m.name""",
    b"""INSERT INTO agent_collections (agent_id, collection_id, tenant)
       SELECT %(made)s, collection_id, tenant FROM agent_collections WHERE agent_id = %(template)s""",
    b"""INSERT INTO agent_tools
           (agent_id, tenant, tool_id, name, attached, approval, first, terminal, required, max_calls)
       SELECT %(made)s, tenant, tool_id, name, attached, approval, first, terminal, required, max_calls
       FROM agent_tools WHERE agent_id = %(template)s""",
)


async def update(tx: Transaction, agent_id: UUID, changes: Mapping[str, Any]) -> AgentRow:
    """Change name, model, system_prompt, options or metadata; absent keys stay."""
    with refuse_taken_name("an agent", changes.get("name")):
        return await _TABLE.update(tx, agent_id, changes)


async def delete(tx: Transaction, agent_id: UUID) -> None:
    """Delete an agent with its history, its own sections and its own collection.

    A collection that other agents read stays, as a shared one. What others may be writing to is locked
    first, in the order in which they lock it.
    """
    sections = await fetch_values(
        tx,
        """SELECT x.id FROM agent_sections l JOIN sections x ON x.id = l.section_id
           WHERE l.agent_id = %s ORDER BY x.id FOR UPDATE OF x""",
        [agent_id],
    )
    await collections.lock_own_of(tx, agent_id)
    await tx.execute("SELECT 1 FROM agent_state WHERE agent_id = %s FOR UPDATE", [agent_id])
    query = "SELECT collection_id FROM agents WHERE id = %s FOR UPDATE"
    collection_id = await fetch_value(tx, query, [agent_id])
    if collection_id is None:
        raise no_agent(agent_id)
    shown = await pictures.shown_by(tx, agent_id)
    with allow_long_statements():
        await tx.execute("DELETE FROM agents WHERE id = %s", [agent_id])
        await pictures.release(tx, shown)
    await notify_stop(tx, agent_id)
    await agent_sections.delete_unread(tx, sections)
    await collections.release(tx, collection_id)
