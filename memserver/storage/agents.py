"""Agents: their row, their state and the sections they start with."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memserver.errors import NotFound
from memserver.messages import JsonObject, MemorySection
from memserver.storage import agent_sections, collections
from memserver.storage.collections import AUTO
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.missing import no_agent, refuse_taken_name
from memserver.storage.rows import Table, fetch_one, fetch_value, fetch_values
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


async def find(tx: Transaction, named: str) -> AgentRow:
    """The agent of this id or name; the id counts where both fit."""
    with suppress(ValueError, NotFound):
        return await get(tx, UUID(named))
    query = f"SELECT {_COLUMNS} FROM agents WHERE name = %s"
    return await fetch_one(tx, AgentRow, query, [named], no_agent(named))


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
    with allow_long_statements():
        await tx.execute("DELETE FROM agents WHERE id = %s", [agent_id])
    await agent_sections.delete_unread(tx, sections)
    await collections.release(tx, collection_id)
