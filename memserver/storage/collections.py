"""Collections of passages: an agent's own and shared ones, and which agents read them.

A collection belongs to the embedding model that its vectors are of. `vectors_table` says where they lie, and
a writer of passages holds the collection's row, so that its counter and that place stay right.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from memserver.errors import Conflict, InvalidInput, NotFound
from memserver.messages import JsonObject
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.missing import no_agent, no_collection, refuse_taken_name
from memserver.storage.rows import Table, columns_of, fetch_all, fetch_one, fetch_values
from memserver.storage.sections import RENEW_STATISTICS
from memserver.storage.watched import allow_long_statements

OWN_TABLE_PREFIX = "vectors_own_"
AUTO = "auto"  # the language of a collection each passage of which is lexed in its own


@dataclass(frozen=True, slots=True)
class NewCollection:
    """What a shared collection is created from; `language` is a text search configuration, or AUTO."""

    name: str
    embedding_model: str
    dimension: int
    description: str = ""
    metadata: JsonObject = field(default_factory=dict)
    language: str = AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRow(NewCollection):
    """A collection as it is stored; `own` is that of an agent."""

    id: UUID
    tenant: str
    own: bool
    languages: list[str]  # other ones that passages were lexed in
    vectors_table: str
    passage_count: int
    last_number: int  # how many passages were ever inserted
    # Up to which number passages are lexed in a new language; None when all are
    relexed_to: int | None
    words_counted: int
    created_at: datetime
    edited_at: datetime

    @property
    def has_own_table(self) -> bool:
        """Whether its vectors lie apart from other collections', with an index."""
        return self.vectors_table.startswith(OWN_TABLE_PREFIX)


@dataclass(frozen=True, slots=True)
class Outdated:
    """A collection, of whatever tenant, whose vectors are of another model than is wanted."""

    collection_id: UUID
    tenant: str
    passage_count: int


_COLUMNS, _OF_C = columns_of(CollectionRow), columns_of(CollectionRow, "c.")


_TABLE = Table(
    CollectionRow, "collections", _COLUMNS, no_collection, listed="NOT own", changed="edited_at"
)
get, lock, id_of, list_page = _TABLE.get, _TABLE.lock, _TABLE.id_of, _TABLE.list_page


async def create(tx: Transaction, tenant: str, new: NewCollection) -> CollectionRow:
    """Create a shared collection. Raises Conflict, or InvalidInput for a language."""
    if new.language != AUTO:
        await check_language(tx, new.language)
    with refuse_taken_name("a collection", new.name):
        return await fetch_one(
            tx,
            CollectionRow,
            f"""INSERT INTO collections (id, tenant, name, description, metadata, language,
                    embedding_model, dimension, vectors_table)
                VALUES (%(id)s, %(tenant)s, %(name)s, %(description)s, %(metadata)s, %(language)s,
                    %(embedding_model)s, %(dimension)s,
                    vectors_table(%(embedding_model)s, %(dimension)s))
                RETURNING {_COLUMNS}""",
            {
                **asdict(new),
                "id": new_id(),
                "tenant": tenant,
                "metadata": Jsonb(dict(new.metadata)),
            },
        )


async def check_language(tx: Transaction, language: str) -> None:
    """Raise InvalidInput unless the language is AUTO, or the database can parse texts of it."""
    query = "SELECT DISTINCT cfgname FROM pg_ts_config ORDER BY cfgname"
    known = [AUTO, *await fetch_values(tx, query)]
    if language not in known:
        raise InvalidInput(
            f"language: there is no text search configuration {language!r}.",
            hint=f"There are: {', '.join(known)}.",
        )


async def update(tx: Transaction, collection_id: UUID, changes: Mapping[str, Any]) -> CollectionRow:
    """Change name, description or metadata; absent keys stay."""
    collection = await lock(tx, collection_id)
    if collection.own and "name" in changes:
        raise Conflict("An agent's own collection has no name of its own.")
    with refuse_taken_name("a collection", changes.get("name")):
        return await _TABLE.update(tx, collection_id, changes)


async def lock_own_of(tx: Transaction, agent_id: UUID) -> None:
    """Lock an agent's own collection, if there is the agent.

    A writer of both locks the collection first and the agent's state after it.
    """
    await tx.execute(
        """SELECT 1 FROM collections c JOIN agents a ON a.collection_id = c.id
           WHERE a.id = %s FOR UPDATE OF c""",
        [agent_id],
    )


async def own_of(tx: Transaction, agent_id: UUID) -> CollectionRow:
    query = f"""SELECT {_OF_C} FROM collections c JOIN agents a ON a.collection_id = c.id
                WHERE a.id = %s"""
    return await fetch_one(tx, CollectionRow, query, [agent_id], no_agent(agent_id))


async def readable_by(tx: Transaction, agent_id: UUID) -> list[CollectionRow]:
    """The agent's own collection first, then those attached to it. Raises NotFound."""
    query = f"""SELECT {_OF_C} FROM collections_of(%(agent)s) c ORDER BY
                c.id = (SELECT collection_id FROM agents WHERE id = %(agent)s) DESC, c.name, c.id"""
    found = await fetch_all(tx, CollectionRow, query, {"agent": agent_id})
    if not found:
        raise no_agent(agent_id)
    return found


async def attach(tx: Transaction, agent_id: UUID, collection_id: UUID) -> None:
    """Let an agent search a collection; does nothing if it does already."""
    collection = await get(tx, collection_id)
    own = await own_of(tx, agent_id)
    if own.id == collection.id:
        return
    await _renew_statistics(tx, agent_id)
    await tx.execute(
        """INSERT INTO agent_collections (agent_id, collection_id, tenant)
           VALUES (%s, %s, %s) ON CONFLICT DO NOTHING""",
        [agent_id, collection_id, collection.tenant],
    )


async def detach(tx: Transaction, agent_id: UUID, collection_id: UUID) -> None:
    if (await own_of(tx, agent_id)).id == collection_id:
        raise Conflict("An agent's own collection can't be detached.")
    await _renew_statistics(tx, agent_id)
    cursor = await tx.execute(
        "DELETE FROM agent_collections WHERE agent_id = %s AND collection_id = %s",
        [agent_id, collection_id],
    )
    if cursor.rowcount == 0:
        raise NotFound(
            f"The collection {collection_id} is not attached to agent {agent_id}.",
            hint="GET /v1/agents/{agent}/collections lists what is.",
        )


async def of_other_models(tx: Transaction, model: str, dimension: int) -> list[Outdated]:
    query = "SELECT * FROM collections_of_other_models(%s, %s)"
    return await fetch_all(tx, Outdated, query, [model, dimension])


async def delete(tx: Transaction, collection_id: UUID) -> None:
    if (await lock(tx, collection_id)).own:
        raise Conflict(
            "The collection is an agent's own.", hint="It goes when the agent is deleted."
        )
    await _delete(tx, collection_id)


async def release(tx: Transaction, collection_id: UUID) -> None:
    """Delete the collection of an agent that is gone, or make it a shared one where others read it."""
    cursor = await tx.execute(
        """UPDATE collections SET own = false, name = name || ' ' || id
           WHERE id = %s AND id IN (SELECT collection_id FROM agent_collections)""",
        [collection_id],
    )
    if cursor.rowcount == 0:
        await lock(tx, collection_id)
        await _delete(tx, collection_id)


async def _delete(tx: Transaction, collection_id: UUID) -> None:
    tables = await fetch_values(
        tx,
        """SELECT vectors_table FROM collections WHERE id = %(collection)s
           UNION SELECT vectors_table FROM vector_builds WHERE collection_id = %(collection)s
           UNION SELECT vectors_table FROM retired_vectors WHERE collection_id = %(collection)s""",
        {"collection": collection_id},
    )
    with allow_long_statements():
        await tx.execute("DELETE FROM collections WHERE id = %s", [collection_id])
        for table in tables:
            await drop_vectors(tx, table, collection_id)


async def drop_vectors(tx: Transaction, table: str, collection_id: UUID) -> None:
    """Delete a collection's vectors in one of its tables, with the table if it was its own."""
    if table.startswith(OWN_TABLE_PREFIX):
        await tx.execute("SELECT drop_own_table(%s)", [table])
        return
    await tx.execute(
        sql.SQL("DELETE FROM {} WHERE collection_id = %s").format(sql.Identifier(table)),
        [collection_id],
    )


async def _renew_statistics(tx: Transaction, agent_id: UUID) -> None:
    await tx.execute(f"UPDATE agent_state s SET {RENEW_STATISTICS} WHERE agent_id = %s", [agent_id])
