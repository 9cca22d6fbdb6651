"""Passages and their vectors: written, changed and deleted. Leaves finding and listing them to `passage_search`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector
from psycopg import sql
from psycopg.types.json import Jsonb

from memserver.errors import EmbeddingError
from memserver.messages import StoredPassage
from memserver.storage import collections, jobs, languages
from memserver.storage.collections import CollectionRow
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.jobs import Job
from memserver.storage.missing import no_passage
from memserver.storage.rows import fetch_all, fetch_one, fetch_value, fetch_values
from memserver.storage.sections import RENEW_STATISTICS
from memserver.storage.watched import allow_long_statements

MOST_TOGETHER = 5000
"""Passages up to which a collection's vectors lie among others' and are compared one by one."""
UPKEEP_JOB = "collection_upkeep"


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage; it is stored with its vector.

    An `id` of the caller's makes its insertion happen once. `next_embedding` is of the model that the
    collection is being re-embedded with (`next_model`). `language` counts where the collection has none,
    `number` where it is free.
    """

    text: str
    embedding: Sequence[float] = ()
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None
    id: UUID | None = None
    next_embedding: Sequence[float] | None = None
    updated_at: datetime | None = None
    language: str = "english"
    number: int | None = None
    expires_at: datetime | None = None


COLUMNS = """p.id::text, p.collection_id::text, p.content AS text, p.tags, p.metadata, p.created_at,
    p.updated_at, p.number, p.expires_at"""
"""Of a row `p` of the table, as `read_passage` takes them."""
_INSERT = f"""
WITH stored AS (
    INSERT INTO passages
        (collection_id, id, tenant, content, tags, metadata, created_at, updated_at, number,
         lexemes, expires_at)
    SELECT %(collection)s, n.id, %(tenant)s, n.content,
           ARRAY(SELECT jsonb_array_elements_text(n.tags)), n.metadata, coalesce(n.at, now()),
           coalesce(n.changed_at, now()), coalesce(n.number, %(last_number)s + n.place),
           lexemes_of(n.language, n.content), n.expires_at
    FROM unnest(%(ids)s::uuid[], %(texts)b::text[], %(tags)b::jsonb[], %(metadata)b::jsonb[],
                %(times)s::timestamptz[], %(changed)s::timestamptz[], %(lexed_in)s::text[], %(numbers)s::bigint[],
                %(expire)s::timestamptz[])
         WITH ORDINALITY AS n (id, content, tags, metadata, at, changed_at, language, number, expires_at, place)
    ON CONFLICT (collection_id, id) DO NOTHING
    RETURNING *
), counted AS (
    UPDATE collections SET passage_count = passage_count + (SELECT count(*) FROM stored),
        last_number = greatest(last_number, (SELECT max(number) FROM stored)), languages = %(languages)s::text[],
        edited_at = now()
    WHERE id = %(collection)s AND EXISTS (SELECT 1 FROM stored)
), noted AS (
    UPDATE agent_state s SET {RENEW_STATISTICS}
    FROM agents a WHERE a.id = s.agent_id AND a.collection_id = %(collection)s
      AND EXISTS (SELECT 1 FROM stored)
)
SELECT {COLUMNS} FROM stored p ORDER BY p.id
"""


async def insert(
    tx: Transaction,
    collection_id: UUID,
    passages: Sequence[NewPassage],
    *,
    model: str,
    next_model: str | None = None,
) -> list[StoredPassage]:
    """Store passages with their vectors, which are of `model`; a thousand at a time is a good number.

    The transaction holds the collection's row to its end. Without `next_model`, that of the passages'
    next_embedding, the job that re-embeds the collection catches up.

    Returns those that were stored, and counted, now: one whose id is there already is left out.
    """
    collection = await collections.lock(tx, collection_id)
    for passage in passages:
        check_vector(collection, model, passage.embedding)
    ids = [passage.id or new_id() for passage in passages]
    lexed_in, spoken = await languages.choose(
        tx, collection.language, collection.languages, [passage.language for passage in passages]
    )
    stored = await fetch_all(
        tx,
        read_passage,
        _INSERT,
        {
            "collection": collection.id,
            "tenant": collection.tenant,
            "last_number": collection.last_number,
            "lexed_in": lexed_in,
            "languages": spoken,
            "numbers": [passage.number for passage in passages],
            "ids": ids,
            "texts": [passage.text for passage in passages],
            "tags": [Jsonb(list(passage.tags)) for passage in passages],
            "metadata": [Jsonb(dict(passage.metadata or {})) for passage in passages],
            "times": [passage.created_at for passage in passages],
            "changed": [passage.updated_at for passage in passages],
            "expire": [passage.expires_at for passage in passages],
        },
    )
    new_ids = {passage.id for passage in stored}
    new = {id_: each for id_, each in zip(ids, passages, strict=True) if str(id_) in new_ids}
    await _put_all_vectors(tx, collection, next_model, new)
    if needs_upkeep(collection, collection.passage_count + len(stored)):
        key = str(collection.id)
        await jobs.defer(tx, Job(UPKEEP_JOB, collection.tenant, {"collection": key}, key=key))
    return stored


async def next_model(tx: Transaction, collection: CollectionRow) -> str | None:
    """The model that a collection is about to switch to: who inserts passages brings its vectors too."""
    query = """SELECT embedding_model FROM vector_builds
               WHERE collection_id = %s AND state = 'catching_up' AND embedding_model <> %s"""
    model: str | None = await fetch_value(tx, query, [collection.id, collection.embedding_model])
    return model


async def put_vectors(
    tx: Transaction, collection: CollectionRow, table: str, vectors: Mapping[UUID, Sequence[float]]
) -> None:
    """Store vectors by their passages' ids in one of the collection's tables; those there stay."""
    await tx.execute(
        sql.SQL(
            """INSERT INTO {} (collection_id, passage_id, tenant, embedding)
               SELECT %s, v.id, %s, v.embedding
               FROM unnest(%s::uuid[], %b::halfvec[]) AS v (id, embedding)
               ON CONFLICT DO NOTHING"""
        ).format(sql.Identifier(table)),
        [
            collection.id,
            collection.tenant,
            list(vectors),
            [HalfVector(list(vector)) for vector in vectors.values()],
        ],
    )


async def _put_all_vectors(
    tx: Transaction,
    collection: CollectionRow,
    next_model: str | None,
    changed: "Mapping[UUID, NewPassage | PassageChange]",
) -> None:
    """Store vectors where they serve and, those of the next model, where they are being built."""
    serving = {id_: p.embedding for id_, p in changed.items() if p.embedding is not None}
    if serving:
        await put_vectors(tx, collection, collection.vectors_table, serving)
    following = {
        id_: p.next_embedding for id_, p in changed.items() if p.next_embedding is not None
    }
    if next_model is None or not following:
        return
    query = """SELECT vectors_table FROM vector_builds
               WHERE collection_id = %s AND embedding_model = %s AND dimension = ALL (%s::integer[])"""
    lengths = [len(vector) for vector in following.values()]
    table = await fetch_value(tx, query, [collection.id, next_model, lengths])
    if table is not None:
        await put_vectors(tx, collection, table, following)


def needs_upkeep(collection: CollectionRow, count: int) -> bool:
    """Whether a collection of so many passages should have a table of its own, or its words counted again."""
    if count <= MOST_TOGETHER:
        return False
    return not collection.has_own_table or count > 2 * collection.words_counted


async def delete(tx: Transaction, collection_id: UUID, passage_id: UUID) -> None:
    if not await delete_many(tx, collection_id, [passage_id]):
        raise no_passage(passage_id)


async def delete_many(tx: Transaction, collection_id: UUID, passage_ids: Sequence[UUID]) -> int:
    """Delete passages with their vectors; returns how many of them there were."""
    collection = await collections.lock(tx, collection_id)
    gone = await fetch_values(
        tx,
        f"""WITH gone AS (
               DELETE FROM passages
               WHERE collection_id = %(collection)s AND id = ANY (%(passages)s)
               RETURNING id
           ), counted AS (
               UPDATE collections SET passage_count = passage_count - (SELECT count(*) FROM gone),
                   edited_at = now()
               WHERE id = %(collection)s AND EXISTS (SELECT 1 FROM gone)
           ), noted AS (
               UPDATE agent_state s SET {RENEW_STATISTICS}
               FROM agents a WHERE a.id = s.agent_id AND a.collection_id = %(collection)s
                 AND EXISTS (SELECT 1 FROM gone)
           )
           SELECT id FROM gone""",
        {"collection": collection_id, "passages": list(passage_ids)},
    )
    await forget_vectors(tx, collection, gone)
    return len(gone)


@dataclass(frozen=True, slots=True)
class PassageChange:
    """What of a passage changes; None stays. A new text comes with its vector and language, as in NewPassage.

    `sets_expiry`: `expires_at` counts, None too.
    """

    text: str | None = None
    embedding: Sequence[float] | None = None
    next_embedding: Sequence[float] | None = None
    tags: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    language: str = "english"
    expires_at: datetime | None = None
    sets_expiry: bool = False


_UPDATE = f"""
WITH p AS (
    UPDATE passages SET
        content = coalesce(%(text)s, content),
        lexemes = CASE WHEN %(text)s::text IS NULL THEN lexemes
                       ELSE lexemes_of(%(language)s, %(text)s) END,
        tags = coalesce(%(tags)s::text[], tags),
        metadata = coalesce(%(metadata)s::jsonb, metadata),
        expires_at = CASE WHEN %(sets_expiry)s THEN %(expires_at)s::timestamptz
                          ELSE expires_at END,
        updated_at = clock_timestamp()
    WHERE collection_id = %(collection)s AND id = %(passage)s
    RETURNING *
), counted AS (
    UPDATE collections SET edited_at = now(), languages = %(languages)s::text[]
    WHERE id = %(collection)s AND EXISTS (SELECT 1 FROM p)
)
SELECT {COLUMNS} FROM p
"""


async def update(
    tx: Transaction,
    collection_id: UUID,
    passage_id: UUID,
    change: PassageChange,
    *,
    model: str,
    next_model: str | None = None,
) -> StoredPassage:
    """Change a passage; its vectors follow its text. Raises EmbeddingError: the vector is of another model."""
    collection = await collections.lock(tx, collection_id)
    [lexed_in], spoken = await languages.choose(
        tx, collection.language, collection.languages, [change.language]
    )
    if change.embedding is not None:
        check_vector(collection, model, change.embedding)
    changed = await fetch_one(
        tx,
        read_passage,
        _UPDATE,
        {
            "collection": collection_id,
            "passage": passage_id,
            "language": lexed_in,
            "languages": spoken,
            "text": change.text,
            "sets_expiry": change.sets_expiry,
            "expires_at": change.expires_at,
            "tags": None if change.tags is None else list(change.tags),
            "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
        },
        no_passage(passage_id),
    )
    if change.embedding is not None:
        await forget_vectors(tx, collection, [passage_id])
    await _put_all_vectors(tx, collection, next_model, {passage_id: change})
    return changed


async def label(
    tx: Transaction,
    passages: tuple[UUID, Sequence[UUID]],
    tags: Sequence[str],
    metadata: Mapping[str, Any],
) -> None:
    """Give passages, a collection's id and theirs, more tags, and metadata of names that they don't have."""
    query = """UPDATE passages SET
                   tags = tags || ARRAY(SELECT new FROM unnest(%s::text[]) new WHERE new <> ALL(tags)),
                   metadata = %s || metadata, updated_at = clock_timestamp()
               WHERE collection_id = %s AND id = ANY(%s)"""
    collection_id, ids = passages
    with allow_long_statements():
        await tx.execute(query, [list(tags), Jsonb(dict(metadata)), collection_id, list(ids)])


async def get(tx: Transaction, collection_id: UUID, passage_id: UUID) -> StoredPassage:
    query = f"SELECT {COLUMNS} FROM passages p WHERE collection_id = %s AND id = %s"
    missing = no_passage(passage_id)
    return await fetch_one(tx, read_passage, query, [collection_id, passage_id], missing)


async def get_with_neighbours(
    tx: Transaction, collection_id: UUID, number: int
) -> list[StoredPassage]:
    """The passage of this number, the one before it and the one after it, where there are such, in order."""
    return await fetch_all(
        tx,
        read_passage,
        f"""(SELECT {COLUMNS} FROM passages p WHERE collection_id = %(collection)s
                AND number <= %(number)s ORDER BY number DESC LIMIT 2)
            UNION ALL
            (SELECT {COLUMNS} FROM passages p WHERE collection_id = %(collection)s
                AND number > %(number)s ORDER BY number LIMIT 1)
            ORDER BY number""",
        {"collection": collection_id, "number": number},
    )


async def forget_vectors(
    tx: Transaction, collection: CollectionRow, passage_ids: Sequence[UUID]
) -> None:
    """Delete vectors where they serve, and where they are being built."""
    query = "SELECT vectors_table FROM vector_builds WHERE collection_id = %s"
    building = await fetch_values(tx, query, [collection.id])
    for table in {collection.vectors_table, *building}:
        await tx.execute(
            sql.SQL("DELETE FROM {} WHERE collection_id = %s AND passage_id = ANY (%s)").format(
                sql.Identifier(table)
            ),
            [collection.id, list(passage_ids)],
        )


def check_vector(collection: CollectionRow, model: str, embedding: Sequence[float]) -> None:
    """Raise EmbeddingError unless the vector fits among the collection's."""
    if (model, len(embedding)) != (collection.embedding_model, collection.dimension):
        raise EmbeddingError(
            f"The collection {collection.name!r} holds vectors of {collection.embedding_model} with "
            f"{collection.dimension} dimensions; these are of {model} with {len(embedding)}.",
            hint="Set MEMSERVER_EMBEDDING_MODEL back, or run `memserver reembed`, which gives the "
            "collection vectors of the new model while the old ones serve.",
        )


def read_passage(tags: Sequence[str], **columns: Any) -> StoredPassage:  # noqa: ANN401 - of the row
    return StoredPassage(tags=tuple(tags), **columns)
