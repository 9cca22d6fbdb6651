"""Vectors of messages, by embedding model: storing them once each, and how far they go.

As with the words of `message_index`, what has vectors is a prefix of the history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pgvector import HalfVector
from psycopg import sql
from psycopg.rows import DictRow

from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.message_index import PENDING, Pending, group_pending, lock_unchanged
from memserver.storage.rows import fetch_all, fetch_optional, fetch_value


@dataclass(frozen=True, slots=True)
class EmbeddedHistory:
    """How far an agent's history has vectors of a model."""

    agent_id: UUID
    tenant: str
    model: str  # the embedding model's name
    table: str  # where its vectors lie
    dimension: int  # length of its vectors
    embedded_to: int  # what was said before this position has its vectors
    messages: int  # how many messages that is
    # The vectors before this position are in the index of large agents' vectors, none after
    large_to: int

    @property
    def in_index(self) -> bool:
        """Whether the index has all of them: before that they are compared one by one."""
        return 0 < self.embedded_to == self.large_to


@dataclass(frozen=True, slots=True)
class PartVector:
    position: int
    part: int
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A message that was found: the cosine similarity of its nearest part, and which that is."""

    position: int
    score: float
    part: int


LARGE = 10_000
"""Messages above which an agent's vectors are indexed: compared one by one, fewer are found no later, and surely."""
MOST_EMBEDDED = 110_000  # characters of a message that are embedded at most
_COLUMNS = (
    "agent_id, tenant, model, table_name AS table, dimension, embedded_to, messages, large_to"
)
_WITHOUT_VECTORS = PENDING.format(
    reached="coalesce(e.embedded_to, 0)",
    joined="""LEFT JOIN recall_embeddings e
        ON e.agent_id = i.agent_id AND e.model = %(model)s AND e.dimension = %(dimension)s""",
)


async def find_embedded(
    tx: Transaction, agent_id: UUID, model: str, dimension: int
) -> EmbeddedHistory | None:
    """How far the history has this model's vectors; None if that has not begun."""
    query = f"""SELECT {_COLUMNS} FROM recall_embeddings
                WHERE agent_id = %s AND model = %s AND dimension = %s"""
    return await fetch_optional(tx, EmbeddedHistory, query, [agent_id, model, dimension])


@dataclass(frozen=True, slots=True)
class SpokenHistory:
    """What an agent's history has for its vectors."""

    messages: int = 0  # that there are to be found
    settled: int = 0  # the position before which nothing more will come
    requested: bool = False  # whether its indexing is urgent already


async def read_spoken(tx: Transaction, agent_id: UUID) -> SpokenHistory:
    query = f"""SELECT coalesce(c.user_said + c.assistant_said, 0) AS messages,
                       (s.done_turn + 1) * {PLACES_PER_TURN} AS settled,
                       coalesce(i.waiting AND i.urgent, false) AS requested
                FROM agent_state s LEFT JOIN recall_counts c ON c.agent_id = s.agent_id
                LEFT JOIN recall_index i ON i.agent_id = s.agent_id
                WHERE s.agent_id = %s"""
    return await fetch_optional(tx, SpokenHistory, query, [agent_id]) or SpokenHistory()


async def without_vectors(tx: Transaction, model: str, dimension: int, limit: int) -> list[Pending]:
    """The next messages without vectors of a model, at most `limit` together, of agents that wait for it."""
    cursor = await tx.execute(
        _WITHOUT_VECTORS.encode(),
        {"limit": limit, "characters": MOST_EMBEDDED, "model": model, "dimension": dimension},
    )
    return group_pending(await cursor.fetchall(), limit)


_BEGIN = """
INSERT INTO recall_embeddings (agent_id, model, dimension, tenant, table_name)
SELECT a.id, %(model)s, %(dimension)s, a.tenant, t.name
FROM agents a, message_vectors_table(%(model)s, %(dimension)s) AS t (name)
WHERE a.id = ANY (%(new)s) ON CONFLICT DO NOTHING
"""
_ADVANCE = """
UPDATE recall_embeddings e SET embedded_to = n.until, messages = e.messages + n.messages,
    large_to = CASE WHEN e.large_to > 0 AND e.large_to = e.embedded_to THEN n.until ELSE e.large_to END,
    updated_at = now()
FROM unnest(%(agents)s::uuid[], %(reached)s::bigint[], %(until)s::bigint[], %(messages)s::bigint[])
    AS n (agent_id, reached, until, messages)
WHERE e.agent_id = n.agent_id AND e.embedded_to = n.reached
  AND e.model = %(model)s AND e.dimension = %(dimension)s
RETURNING e.agent_id, e.tenant, e.table_name, e.large_to = e.embedded_to AS large
"""


async def store(
    tx: Transaction,
    model: str,
    dimension: int,
    pending: Sequence[Pending],
    vectors: Sequence[Sequence[PartVector]],
) -> None:
    """Store the vectors of several agents' messages, and how far they go; not where another one has meanwhile.

    Nor where messages were deleted meanwhile: those that are left come again. `vectors` has those of each agent's
    messages' parts.
    """
    unchanged = await lock_unchanged(tx, pending)
    vectors = [
        parts for agent, parts in zip(pending, vectors, strict=True) if agent.agent_id in unchanged
    ]
    pending = [agent for agent in pending if agent.agent_id in unchanged]
    space = {"model": model, "dimension": dimension}
    await tx.execute(
        _BEGIN, {**space, "new": [each.agent_id for each in pending if not each.reached]}
    )
    advance = {
        "agents": [each.agent_id for each in pending],
        "reached": [each.reached for each in pending],
        "until": [each.until for each in pending],
        "messages": [len({part.position for part in parts}) for parts in vectors],
    }
    cursor = await tx.execute(_ADVANCE, {**space, **advance})
    advanced = {row["agent_id"]: row for row in await cursor.fetchall()}
    new = [
        (advanced[each.agent_id], part)
        for each, parts in zip(pending, vectors, strict=True)
        if each.agent_id in advanced
        for part in parts
    ]
    if new:
        await _insert(tx, new)


async def _insert(tx: Transaction, new: Sequence[tuple[DictRow, PartVector]]) -> None:
    """Insert vectors, each with the row that says whose it is."""
    row, _ = new[0]
    await tx.execute(
        sql.SQL(
            """INSERT INTO {} (agent_id, position, part, tenant, embedding, large)
               SELECT v.agent_id, v.position, v.part, %s, v.embedding, v.large
               FROM unnest(%b::uuid[], %b::bigint[], %b::integer[], %b::halfvec[], %b::boolean[])
                   AS v (agent_id, position, part, embedding, large)"""
        ).format(sql.Identifier(row["table_name"])),
        [
            row["tenant"],
            [row["agent_id"] for row, _ in new],
            [part.position for _, part in new],
            [part.part for _, part in new],
            [HalfVector(part.vector) for _, part in new],
            [row["large"] for row, _ in new],
        ],
    )


async def index_more(tx: Transaction, model: str, dimension: int, limit: int) -> bool:
    """Put the next vectors of an agent that has become large into the index; returns whether there were any.

    These are `limit` at most, but for the parts of the last message.
    """
    state = await fetch_optional(
        tx,
        EmbeddedHistory,
        f"""SELECT {_COLUMNS} FROM recall_embeddings e
            WHERE e.model = %s AND e.dimension = %s AND e.messages > %s AND e.large_to < e.embedded_to
              AND EXISTS (SELECT 1 FROM recall_index i WHERE i.agent_id = e.agent_id AND i.waiting)
            ORDER BY e.agent_id LIMIT 1 FOR UPDATE""",
        [model, dimension, LARGE],
    )
    if state is None:
        return False
    table = sql.Identifier(state.table)
    query = sql.SQL(
        """SELECT position + 1 FROM {} WHERE agent_id = %s AND position >= %s
           ORDER BY position OFFSET %s LIMIT 1"""
    ).format(table)
    following = await fetch_value(tx, query, [state.agent_id, state.large_to, limit - 1])
    until = state.embedded_to if following is None else following
    await tx.execute(
        sql.SQL(
            "UPDATE {} SET large = true WHERE agent_id = %s AND position >= %s AND position < %s"
        ).format(table),
        [state.agent_id, state.large_to, until],
    )
    await tx.execute(
        "UPDATE recall_embeddings SET large_to = %s WHERE agent_id = %s AND model = %s AND dimension = %s",
        [until, state.agent_id, model, dimension],
    )
    return True


async def forget_other_models(tx: Transaction, model: str, dimension: int) -> None:
    """Delete vectors of other models, of agents that have all of this model's."""
    others = await fetch_all(
        tx,
        EmbeddedHistory,
        f"""SELECT {_COLUMNS} FROM recall_embeddings o
            WHERE (model, dimension) <> (%(model)s, %(dimension)s) AND EXISTS (
                SELECT 1 FROM recall_embeddings e JOIN agent_state s ON s.agent_id = e.agent_id
                WHERE e.agent_id = o.agent_id AND e.model = %(model)s AND e.dimension = %(dimension)s
                  AND e.embedded_to >= (s.done_turn + 1) * {PLACES_PER_TURN})""",
        {"model": model, "dimension": dimension},
    )
    for other in others:
        await tx.execute(
            "DELETE FROM recall_embeddings WHERE agent_id = %s AND model = %s AND dimension = %s",
            [other.agent_id, other.model, other.dimension],
        )
        await tx.execute(
            sql.SQL("DELETE FROM {} WHERE agent_id = %s").format(sql.Identifier(other.table)),
            [other.agent_id],
        )
