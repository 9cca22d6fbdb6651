"""Passages and their vectors: written, read, changed and deleted. Leaves finding them to `passage_search`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector
from psycopg import sql
from psycopg.types.json import Jsonb

from memserver.errors import EmbeddingError
from memserver.messages import Passage
from memserver.storage import collections
from memserver.storage.collections import Collection
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.missing import no_passage


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage with its vector. An `id` of the caller's makes its insertion happen once."""

    text: str
    embedding: Sequence[float]
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None
    id: UUID | None = None


_COLUMNS = "p.id, p.collection_id, p.content, p.tags, p.metadata, p.created_at, p.updated_at"
_INSERT = f"""
WITH stored AS (
    INSERT INTO passages
        (collection_id, id, tenant, content, tags, metadata, created_at, lexemes)
    SELECT %(collection)s, n.id, %(tenant)s, n.content,
           ARRAY(SELECT jsonb_array_elements_text(n.tags)), n.metadata, coalesce(n.at, now()),
           lexemes_of(%(language)s, n.content)
    FROM unnest(%(ids)s::uuid[], %(texts)s::text[], %(tags)s::jsonb[], %(metadata)s::jsonb[],
                %(times)s::timestamptz[]) AS n (id, content, tags, metadata, at)
    ON CONFLICT DO NOTHING
    RETURNING *
), counted AS (
    UPDATE collections SET passage_count = passage_count + (SELECT count(*) FROM stored),
        edited_at = now()
    WHERE id = %(collection)s AND EXISTS (SELECT 1 FROM stored)
), noted AS (
    UPDATE agent_state s SET memory_edited_at = now(), stats_edited_at = now(),
        stats_messages = s.message_count
    FROM agents a WHERE a.id = s.agent_id AND a.collection_id = %(collection)s
      AND EXISTS (SELECT 1 FROM stored)
)
SELECT {_COLUMNS} FROM stored p ORDER BY p.id
"""


async def insert(
    tx: Transaction, collection_id: UUID, passages: Sequence[NewPassage], *, model: str
) -> list[Passage]:
    """Store passages with their vectors, many at a time; one whose id is there already is left out.

    Args:
        tx: holds the collection's row from here to its end.
        collection_id: where they go.
        passages: any number; a thousand at a time is a good one.
        model: the embedding model that their vectors are of.

    Returns:
        Those that were stored, and counted, now.

    Raises:
        NotFound: no such collection.
        EmbeddingError: the vectors are not of the collection's model and dimension.
    """
    collection = await collections.lock(tx, collection_id)
    for passage in passages:
        check_vector(collection, model, passage.embedding)
    ids = [passage.id or new_id() for passage in passages]
    cursor = await tx.execute(
        _INSERT,
        {
            "collection": collection.id,
            "tenant": collection.tenant,
            "language": collection.language,
            "ids": ids,
            "texts": [passage.text for passage in passages],
            "tags": [Jsonb(list(passage.tags)) for passage in passages],
            "metadata": [Jsonb(dict(passage.metadata or {})) for passage in passages],
            "times": [passage.created_at for passage in passages],
        },
    )
    stored = [passage_from_row(row) for row in await cursor.fetchall()]
    new = {passage.id for passage in stored}
    vectors = {
        id_: passage.embedding
        for id_, passage in zip(ids, passages, strict=True)
        if str(id_) in new
    }
    await put_vectors(tx, collection, collection.vectors_table, vectors)
    return stored


async def put_vectors(
    tx: Transaction, collection: Collection, table: str, vectors: Mapping[UUID, Sequence[float]]
) -> None:
    """Store vectors by their passages' ids in one of the collection's tables; those there stay."""
    await tx.execute(
        sql.SQL(
            """INSERT INTO {} (collection_id, passage_id, tenant, embedding)
               SELECT %s, v.id, %s, v.embedding
               FROM unnest(%s::uuid[], %s::halfvec[]) AS v (id, embedding)
               ON CONFLICT DO NOTHING"""
        ).format(sql.Identifier(table)),
        [
            collection.id,
            collection.tenant,
            list(vectors),
            [half_vector(vector) for vector in vectors.values()],
        ],
    )


async def list_page(
    tx: Transaction, collection_id: UUID, *, after: UUID | None, limit: int
) -> list[Passage]:
    """A page of passages in the order of their insertion (ids sort by time)."""
    cursor = await tx.execute(
        f"""SELECT {_COLUMNS} FROM passages p
            WHERE collection_id = %(collection)s AND (%(after)s::uuid IS NULL OR id > %(after)s)
            ORDER BY id LIMIT %(limit)s""",
        {"collection": collection_id, "after": after, "limit": limit},
    )
    return [passage_from_row(row) for row in await cursor.fetchall()]


async def delete(tx: Transaction, collection_id: UUID, passage_id: UUID) -> None:
    """Delete one passage with its vectors. Raises NotFound."""
    if not await delete_many(tx, collection_id, [passage_id]):
        raise no_passage(passage_id)


async def delete_many(tx: Transaction, collection_id: UUID, passage_ids: Sequence[UUID]) -> int:
    """Delete passages with their vectors; returns how many of them there were. Raises NotFound."""
    collection = await collections.lock(tx, collection_id)
    cursor = await tx.execute(
        """WITH gone AS (
               DELETE FROM passages
               WHERE collection_id = %(collection)s AND id = ANY (%(passages)s)
               RETURNING id
           ), counted AS (
               UPDATE collections SET passage_count = passage_count - (SELECT count(*) FROM gone),
                   edited_at = now()
               WHERE id = %(collection)s AND EXISTS (SELECT 1 FROM gone)
           ), noted AS (
               UPDATE agent_state s SET memory_edited_at = now(), stats_edited_at = now(),
                   stats_messages = s.message_count
               FROM agents a WHERE a.id = s.agent_id AND a.collection_id = %(collection)s
                 AND EXISTS (SELECT 1 FROM gone)
           )
           SELECT id FROM gone""",
        {"collection": collection_id, "passages": list(passage_ids)},
    )
    gone = [row["id"] for row in await cursor.fetchall()]
    await forget_vectors(tx, collection, gone)
    return len(gone)


async def forget_vectors(
    tx: Transaction, collection: Collection, passage_ids: Sequence[UUID]
) -> None:
    """Delete vectors where they serve, and where they are being built."""
    cursor = await tx.execute(
        "SELECT vectors_table FROM vector_builds WHERE collection_id = %s", [collection.id]
    )
    building = [row["vectors_table"] for row in await cursor.fetchall()]
    for table in {collection.vectors_table, *building}:
        await tx.execute(
            sql.SQL("DELETE FROM {} WHERE collection_id = %s AND passage_id = ANY (%s)").format(
                sql.Identifier(table)
            ),
            [collection.id, list(passage_ids)],
        )


def check_vector(collection: Collection, model: str, embedding: Sequence[float]) -> None:
    """Raise EmbeddingError unless the vector fits among the collection's."""
    if (model, len(embedding)) != (collection.embedding_model, collection.dimension):
        raise EmbeddingError(
            f"The collection {collection.name!r} holds vectors of {collection.embedding_model} with "
            f"{collection.dimension} dimensions; these are of {model} with {len(embedding)}.",
            hint="Set MEMSERVER_EMBEDDING_MODEL back, or run `memserver reembed`, which gives the "
            "collection vectors of the new model while the old ones serve.",
        )


def half_vector(embedding: Sequence[float]) -> HalfVector:
    """A vector as the driver sends it."""
    return HalfVector(list(embedding))


def passage_from_row(row: Mapping[str, Any]) -> Passage:
    """A passage from a row of the table."""
    return Passage(
        id=str(row["id"]),
        collection_id=str(row["collection_id"]),
        text=row["content"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        tags=tuple(row["tags"]),
        metadata=row["metadata"],
    )
