"""Archival storage: passages by collection, their vectors in one table per embedding model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector
from psycopg import sql
from psycopg.types.json import Jsonb

from memserver.errors import EmbeddingError, NotFound
from memserver.messages import Passage
from memserver.storage.agents import no_agent
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id


@dataclass(frozen=True, slots=True)
class Collection:
    """Where an agent's passages lie, and which model's vectors they have."""

    id: UUID
    tenant: str
    embedding_model: str
    dimension: int
    passage_count: int


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage with its vector."""

    text: str
    embedding: Sequence[float]
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None


async def collection_of(tx: Transaction, agent_id: UUID) -> Collection:
    """The agent's own collection. Raises NotFound."""
    cursor = await tx.execute(
        """SELECT c.id, c.tenant, c.embedding_model, c.dimension, c.passage_count
           FROM collections c JOIN agents a ON a.collection_id = c.id WHERE a.id = %s""",
        [agent_id],
    )
    row = await cursor.fetchone()
    if row is None:
        raise no_agent(agent_id)
    return Collection(**row)


async def insert(
    tx: Transaction, collection: Collection, passages: Sequence[NewPassage]
) -> list[Passage]:
    """Store passages with their vectors, and count them for every agent that reads the collection.

    Raises:
        EmbeddingError: a vector has another dimension than the collection.
    """
    for passage in passages:
        _check_dimension(collection, passage.embedding)
    # First, since making the table waits for all who have inserted a passage and not committed yet.
    table = await _vectors_table(tx, collection)
    ids = [new_id() for _ in passages]
    cursor = await tx.execute(
        """WITH stored AS (
               INSERT INTO passages (collection_id, id, tenant, content, tags, metadata, created_at)
               SELECT %(collection)s, p.id, %(tenant)s, p.content,
                      ARRAY(SELECT jsonb_array_elements_text(p.tags)), p.metadata,
                      coalesce(p.at, now())
               FROM unnest(%(ids)s::uuid[], %(texts)s::text[], %(tags)s::jsonb[],
                           %(metadata)s::jsonb[], %(times)s::timestamptz[])
                    AS p (id, content, tags, metadata, at)
               RETURNING *
           ), counted AS (
               UPDATE collections SET passage_count = passage_count + %(count)s
               WHERE id = %(collection)s
           ), noted AS (
               UPDATE agent_state s SET passage_count = s.passage_count + %(count)s,
                   memory_edited_at = now(), stats_edited_at = now(),
                   stats_passages = s.passage_count + %(count)s,
                   stats_messages = s.message_count
               FROM agents a WHERE a.id = s.agent_id AND a.collection_id = %(collection)s
           )
           SELECT id, content, created_at, tags, metadata, NULL::float8 AS score
           FROM stored ORDER BY id""",
        {
            "collection": collection.id,
            "tenant": collection.tenant,
            "ids": ids,
            "texts": [passage.text for passage in passages],
            "tags": [Jsonb(list(passage.tags)) for passage in passages],
            "metadata": [Jsonb(dict(passage.metadata or {})) for passage in passages],
            "times": [passage.created_at for passage in passages],
            "count": len(passages),
        },
    )
    rows = await cursor.fetchall()
    await tx.execute(
        sql.SQL(
            """INSERT INTO {} (collection_id, passage_id, tenant, embedding)
               SELECT %s, v.id, %s, v.embedding::halfvec
               FROM unnest(%s::uuid[], %s::text[]) AS v (id, embedding)"""
        ).format(table),
        [collection.id, collection.tenant, ids, [_text(p.embedding) for p in passages]],
    )
    return [_passage(row) for row in rows]


async def search(
    tx: Transaction, collection: Collection, embedding: Sequence[float], *, limit: int, offset: int
) -> list[Passage]:
    """The passages nearest to a vector by cosine similarity, best first; exact.

    Raises:
        EmbeddingError: the vector has another dimension than the collection.
    """
    _check_dimension(collection, embedding)
    table = await _vectors_table(tx, collection)
    cursor = await tx.execute(
        sql.SQL(
            """SELECT p.id, p.content, p.created_at, p.tags, p.metadata, 1 - n.distance AS score
               FROM (SELECT passage_id, embedding <=> %(embedding)s::halfvec AS distance FROM {}
                     WHERE collection_id = %(collection)s
                     ORDER BY distance, passage_id LIMIT %(limit)s OFFSET %(offset)s) n
               JOIN passages p ON p.collection_id = %(collection)s AND p.id = n.passage_id
               ORDER BY n.distance, n.passage_id"""
        ).format(table),
        {
            "embedding": _text(embedding),
            "collection": collection.id,
            "limit": limit,
            "offset": offset,
        },
    )
    return [_passage(row) for row in await cursor.fetchall()]


async def list_page(
    tx: Transaction, collection_id: UUID, *, after: UUID | None, limit: int
) -> list[Passage]:
    """A page of passages in the order of their insertion (ids sort by time)."""
    cursor = await tx.execute(
        """SELECT id, content, created_at, tags, metadata, NULL::float8 AS score FROM passages
           WHERE collection_id = %(collection)s AND (%(after)s::uuid IS NULL OR id > %(after)s)
           ORDER BY id LIMIT %(limit)s""",
        {"collection": collection_id, "after": after, "limit": limit},
    )
    return [_passage(row) for row in await cursor.fetchall()]


async def delete(tx: Transaction, collection_id: UUID, passage_id: UUID) -> None:
    """Delete one passage with its vectors. Raises NotFound."""
    cursor = await tx.execute(
        """WITH gone AS (
               DELETE FROM passages WHERE collection_id = %(collection)s AND id = %(passage)s
               RETURNING id
           ), counted AS (
               UPDATE collections SET passage_count = passage_count - 1
               WHERE id = %(collection)s AND EXISTS (SELECT 1 FROM gone)
           ), noted AS (
               UPDATE agent_state s SET passage_count = s.passage_count - 1,
                   memory_edited_at = now(), stats_edited_at = now(),
                   stats_passages = s.passage_count - 1, stats_messages = s.message_count
               FROM agents a WHERE a.id = s.agent_id AND a.collection_id = %(collection)s
                 AND EXISTS (SELECT 1 FROM gone)
           )
           SELECT id FROM gone""",
        {"collection": collection_id, "passage": passage_id},
    )
    if await cursor.fetchone() is None:
        raise NotFound(f"There is no passage {passage_id}.")


async def _vectors_table(tx: Transaction, collection: Collection) -> sql.Identifier:
    cursor = await tx.execute(
        "SELECT vectors_table(%s, %s) AS name", [collection.embedding_model, collection.dimension]
    )
    row = await cursor.fetchone()
    assert row is not None
    return sql.Identifier(row["name"])


def _check_dimension(collection: Collection, embedding: Sequence[float]) -> None:
    if len(embedding) != collection.dimension:
        raise EmbeddingError(
            f"The embedder gives {len(embedding)} dimensions, but this collection was made with "
            f"{collection.embedding_model} and {collection.dimension}.",
            hint="Set MEMSERVER_EMBEDDING_MODEL back, or insert into a new agent.",
        )


def _text(embedding: Sequence[float]) -> str:
    return HalfVector(list(embedding)).to_text()  # type: ignore[no-any-return]


def _passage(row: dict[str, Any]) -> Passage:
    return Passage(
        id=str(row["id"]),
        text=row["content"],
        created_at=row["created_at"],
        tags=tuple(row["tags"]),
        metadata=row["metadata"],
        score=row["score"],
    )
