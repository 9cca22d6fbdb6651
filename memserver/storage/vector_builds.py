"""Vectors built beside those that serve: of another model, or for a collection that has grown large.

A build is filled in the order of the passages' ids, indexed, caught up with what came in meanwhile, and
switched to. All of its progress is in its row, so the job that takes it up continues where it stood; two at once
do no harm. Deleting or changing a passage takes its vector from the build, too. Leaves embedding to
`memory.reembedding`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from pgvector import HalfVector
from psycopg import sql

from memserver.storage import collections, jobs, passages
from memserver.storage.database import Transaction
from memserver.storage.jobs import Job
from memserver.storage.languages import PendingPassage
from memserver.storage.rows import columns_of, fetch_all, fetch_one, fetch_optional, fetch_value

State = Literal["filling", "indexing", "catching_up"]

DROP_JOB = "drop_retired_vectors"
GRACE = timedelta(minutes=1)
"""How long vectors that no longer serve are kept for searches that began before."""
SAMPLE = 20_000  # passages whose words are counted, of a collection that has more
LEAST_COUNTED = 10  # passages of the sample that a word must be in to be called common


@dataclass(frozen=True, slots=True)
class Build:
    """Vectors in the making; `stored` is how many there are."""

    collection_id: UUID
    embedding_model: str
    dimension: int
    vectors_table: str
    state: State
    filled_to: UUID | None
    stored: int


_COLUMNS = columns_of(Build)


async def find(tx: Transaction, collection_id: UUID) -> Build | None:
    query = f"SELECT {_COLUMNS} FROM vector_builds WHERE collection_id = %s"
    return await fetch_optional(tx, Build, query, [collection_id])


async def begin(tx: Transaction, collection_id: UUID, model: str, dimension: int) -> Build | None:
    """Begin a build of this model, or continue it; one of another model is given up.

    None: the collection has nothing to gain. Its vectors are of that model, and where they lie suits its size.
    """
    collection = await collections.lock(tx, collection_id)
    large = collection.passage_count > passages.MOST_TOGETHER
    same = (collection.embedding_model, collection.dimension) == (model, dimension)
    running = await find(tx, collection_id)
    if running is not None:
        if (running.embedding_model, running.dimension) == (model, dimension):
            return running
        await tx.execute("DELETE FROM vector_builds WHERE collection_id = %s", [collection_id])
        await collections.drop_vectors(tx, running.vectors_table, collection_id)
    if same and (collection.has_own_table or not large):
        return None
    if large:
        query = "SELECT own_vectors_table(%s, %s)"
        table = await fetch_value(tx, query, [collection_id, dimension])
    else:
        table = await fetch_value(tx, "SELECT vectors_table(%s, %s)", [model, dimension])
    await forget_retired(tx, table, collection_id)
    query = f"""INSERT INTO vector_builds
                    (collection_id, tenant, embedding_model, dimension, vectors_table)
                VALUES (%s, %s, %s, %s, %s) RETURNING {_COLUMNS}"""
    values = [collection_id, collection.tenant, model, dimension, table]
    return await fetch_one(tx, Build, query, values)


async def next_texts(tx: Transaction, build: Build, at_most: int) -> list[PendingPassage]:
    """Passages to embed next: in order while it is being filled, later those that are missing."""
    return await fetch_all(
        tx,
        PendingPassage,
        f"""SELECT p.id, p.number, p.content AS text, p.updated_at FROM passages p
            WHERE p.collection_id = %(collection)s AND {_missing(build)}
            ORDER BY p.id LIMIT %(at_most)s""",
        {"collection": build.collection_id, "after": build.filled_to, "at_most": at_most},
    )


async def store(
    tx: Transaction,
    build: Build,
    texts: Sequence[PendingPassage],
    vectors: Sequence[Sequence[float]],
) -> None:
    """Store the vectors of texts, and that they are done; none of a passage that was changed meanwhile."""
    if not await _hold(tx, build):
        return
    cursor = await tx.execute(
        sql.SQL(
            """WITH still AS (
                   SELECT p.collection_id, p.id, p.tenant, n.embedding
                   FROM unnest(%s::uuid[], %s::timestamptz[], %b::halfvec[])
                        AS n (id, updated_at, embedding)
                   JOIN passages p ON p.collection_id = %s AND p.id = n.id
                        AND p.updated_at = n.updated_at
                   FOR SHARE OF p
               )
               INSERT INTO {} (collection_id, passage_id, tenant, embedding)
               SELECT * FROM still ON CONFLICT DO NOTHING"""
        ).format(sql.Identifier(build.vectors_table)),
        [
            [text.id for text in texts],
            [text.updated_at for text in texts],
            [HalfVector(list(vector)) for vector in vectors],
            build.collection_id,
        ],
    )
    await _advance(tx, build, texts[-1].id, cursor.rowcount)


async def copy(tx: Transaction, build: Build, at_most: int) -> int:
    """Copy vectors of the same model from where they serve; returns of how many passages."""
    collection = await collections.get(tx, build.collection_id)
    if not await _hold(tx, build):
        return at_most
    cursor = await tx.execute(
        sql.SQL(
            """WITH next AS (
                   SELECT p.collection_id, p.id FROM passages p
                   WHERE p.collection_id = %(collection)s AND {missing}
                   ORDER BY p.id LIMIT %(at_most)s FOR SHARE
               ), copied AS (
                   INSERT INTO {to} (collection_id, passage_id, tenant, embedding)
                   SELECT v.collection_id, v.passage_id, v.tenant, v.embedding
                   FROM next JOIN {source} v ON v.collection_id = next.collection_id
                        AND v.passage_id = next.id
                   ON CONFLICT DO NOTHING RETURNING 1
               )
               SELECT (SELECT count(*) FROM copied) AS copied,
                      (SELECT count(*) FROM next) AS seen,
                      (SELECT id FROM next ORDER BY id DESC LIMIT 1) AS last"""
        ).format(
            missing=sql.SQL(_missing(build)),
            to=sql.Identifier(build.vectors_table),
            source=sql.Identifier(collection.vectors_table),
        ),
        {"collection": build.collection_id, "after": build.filled_to, "at_most": at_most},
    )
    [row] = await cursor.fetchall()
    if row["seen"]:
        await _advance(tx, build, row["last"], row["copied"])
    return int(row["seen"])


async def end_filling(tx: Transaction, build: Build) -> None:
    """All passages that were there have their vectors; next comes the index, if the table gets one."""
    own = build.vectors_table.startswith(collections.OWN_TABLE_PREFIX)
    await _set_state(tx, build, "indexing" if own else "catching_up")


async def index(tx: Transaction, build: Build, memory: str) -> None:
    """Build the HNSW index, in as much memory (such as "512MB"); takes minutes for a million vectors."""
    if not await _hold(tx, build):
        return
    await tx.execute("SELECT index_vectors(%s, %s)", [build.collection_id, memory])
    await _set_state(tx, build, "catching_up")


async def switch(tx: Transaction, build: Build) -> bool:
    """Let the new vectors serve, if none is missing; writers of the collection wait for the answer."""
    collection = await collections.lock(tx, build.collection_id)
    if not await _hold(tx, build):
        return True
    query = f"""SELECT 1 FROM passages p WHERE p.collection_id = %(collection)s
                AND {_missing(build)} LIMIT 1"""
    if await fetch_value(tx, query, {"collection": build.collection_id}) is not None:
        return False
    await tx.execute(
        """WITH done AS (DELETE FROM vector_builds WHERE collection_id = %(id)s),
           retired AS (
               INSERT INTO retired_vectors (vectors_table, collection_id, tenant)
               SELECT vectors_table, id, tenant FROM collections WHERE id = %(id)s
           )
           UPDATE collections SET vectors_table = %(table)s, embedding_model = %(model)s,
               dimension = %(dimension)s WHERE id = %(id)s""",
        {
            "id": build.collection_id,
            "table": build.vectors_table,
            "model": build.embedding_model,
            "dimension": build.dimension,
        },
    )
    table = collection.vectors_table
    arguments = {"collection": str(collection.id), "vectors_table": table}
    due = await fetch_value(tx, "SELECT now()") + GRACE
    job = Job(DROP_JOB, collection.tenant, arguments, f"{collection.id} {table}", due=due)
    await jobs.defer(tx, job)
    return True


async def forget_retired(tx: Transaction, table: str, collection_id: UUID) -> None:
    """Delete the vectors of a collection in a table where they no longer serve, if there are any."""
    cursor = await tx.execute(
        "DELETE FROM retired_vectors WHERE vectors_table = %s AND collection_id = %s",
        [table, collection_id],
    )
    if cursor.rowcount:
        await collections.drop_vectors(tx, table, collection_id)


async def count_words(tx: Transaction, collection_id: UUID) -> None:
    """Find out which words are common in a collection that has grown, from a sample of its passages."""
    collection = await collections.lock(tx, collection_id)
    if not passages.needs_upkeep(collection, collection.passage_count):
        return
    # The last four hexadecimal digits of an id are random.
    share = min(1.0, SAMPLE / max(1, collection.passage_count))
    await tx.execute("DELETE FROM collection_words WHERE collection_id = %s", [collection_id])
    await tx.execute(
        """WITH sample AS MATERIALIZED (
               SELECT lexemes FROM passages WHERE collection_id = %(collection)s
               AND ('x' || right(id::text, 4))::bit(16)::integer < %(share)s * 65536
           )
           INSERT INTO collection_words (collection_id, word, tenant, share)
           SELECT %(collection)s, word, %(tenant)s,
                  count(*)::real / (SELECT count(*) FROM sample)
           FROM sample, unnest(tsvector_to_array(lexemes)) word
           GROUP BY word HAVING count(*) >= %(least)s""",
        {
            "collection": collection_id,
            "tenant": collection.tenant,
            "share": share,
            "least": LEAST_COUNTED,
        },
    )
    await tx.execute(
        "UPDATE collections SET words_counted = %s WHERE id = %s",
        [collection.passage_count, collection_id],
    )


def _missing(build: Build) -> str:
    """The condition on passages p that the build has no vector of."""
    if build.state == "filling":
        return "(%(after)s::uuid IS NULL OR p.id > %(after)s)"
    table = sql.Identifier(build.vectors_table).as_string()
    return (
        f"NOT EXISTS (SELECT 1 FROM {table} v "
        "WHERE v.collection_id = p.collection_id AND v.passage_id = p.id)"
    )


async def _hold(tx: Transaction, build: Build) -> bool:
    """Lock the build's row; False where somebody else has moved it on meanwhile, or given it up."""
    query = """SELECT 1 FROM vector_builds WHERE collection_id = %s AND vectors_table = %s
               AND state = %s AND filled_to IS NOT DISTINCT FROM %s FOR UPDATE"""
    values = [build.collection_id, build.vectors_table, build.state, build.filled_to]
    return await fetch_value(tx, query, values) is not None


async def _advance(tx: Transaction, build: Build, last: UUID, added: int) -> None:
    await tx.execute(
        """UPDATE vector_builds SET stored = stored + %s, updated_at = now(),
               filled_to = CASE WHEN state = 'filling' THEN %s ELSE filled_to END
           WHERE collection_id = %s""",
        [added, last, build.collection_id],
    )


async def _set_state(tx: Transaction, build: Build, state: State) -> None:
    await tx.execute(
        """UPDATE vector_builds SET state = %s, updated_at = now()
           WHERE collection_id = %s AND vectors_table = %s AND state = %s""",
        [state, build.collection_id, build.vectors_table, build.state],
    )
