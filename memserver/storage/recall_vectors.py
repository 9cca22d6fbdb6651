"""Vectors of messages, by embedding model: storing them once each, and finding the nearest.

What has been embedded is a prefix of the history. So how far it goes is one number, which is written together
with the vectors: after a crash at any point the next one goes on exactly there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pgvector import HalfVector
from psycopg import sql

from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN

JOB = "embed_recall"
"""The job that embeds an agent's messages; its key is the agent."""

OPTION = "embed_recall"
"""The agent's option."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """How far an agent's history has vectors of a model.

    Attributes:
        agent_id: whose history.
        tenant: whose agent.
        model: the embedding model's name.
        table: where its vectors lie.
        dimension: length of its vectors.
        embedded_to: what was said before this position has its vectors.
        messages: how many messages that is.
    """

    agent_id: UUID
    tenant: str
    model: str
    table: str
    dimension: int
    embedded_to: int
    messages: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The next messages without vectors, in order, and the position up to which these are all."""

    messages: Sequence[tuple[int, str]]
    until: int


@dataclass(frozen=True, slots=True)
class PartVector:
    """The vector of one part of a message."""

    position: int
    part: int
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class Near:
    """A message that was found, with the cosine similarity of its nearest part."""

    position: int
    score: float


_EMBEDDED = "agent_id, tenant, model, table_name AS table, dimension, embedded_to, messages"


async def wanting(tx: Transaction, agent_id: UUID) -> str | None:
    """The tenant of the agent if it wants its history embedded; None too if there is no such agent."""
    cursor = await tx.execute(
        "SELECT tenant FROM agents WHERE id = %s AND options -> %s = 'true'", [agent_id, OPTION]
    )
    row = await cursor.fetchone()
    return None if row is None else str(row["tenant"])


async def embedded(tx: Transaction, agent_id: UUID, model: str, dimension: int) -> Embedded | None:
    """How far the history has this model's vectors; None if that has not begun."""
    cursor = await tx.execute(
        f"""SELECT {_EMBEDDED} FROM recall_embeddings
            WHERE agent_id = %s AND model = %s AND dimension = %s""",
        [agent_id, model, dimension],
    )
    row = await cursor.fetchone()
    return None if row is None else Embedded(**row)


async def begin(tx: Transaction, agent_id: UUID, model: str, dimension: int) -> Embedded | None:
    """The same, begun now if it wasn't; None if the agent doesn't want it (any more)."""
    if await wanting(tx, agent_id) is None:
        return None
    found = await embedded(tx, agent_id, model, dimension)
    if found is not None:
        return found
    await tx.execute(
        """INSERT INTO recall_embeddings (agent_id, model, dimension, tenant, table_name)
           SELECT id, %(model)s, %(dimension)s, tenant, message_vectors_table(%(model)s, %(dimension)s)
           FROM agents WHERE id = %(agent_id)s
           ON CONFLICT DO NOTHING""",
        {"agent_id": agent_id, "model": model, "dimension": dimension},
    )
    return await embedded(tx, agent_id, model, dimension)


async def said(tx: Transaction, agent_id: UUID) -> tuple[int, int]:
    """How many messages there are to be found, and the position before which nothing more will come."""
    cursor = await tx.execute(
        f"""SELECT coalesce(c.user_said + c.assistant_said, 0) AS messages,
                   (s.done_turn + 1) * {PLACES_PER_TURN} AS settled
            FROM agent_state s LEFT JOIN recall_counts c ON c.agent_id = s.agent_id
            WHERE s.agent_id = %s""",
        [agent_id],
    )
    row = await cursor.fetchone()
    return (0, 0) if row is None else (row["messages"], row["settled"])


async def pending(tx: Transaction, state: Embedded, limit: int) -> Pending:
    """The next messages to embed, of turns that have ended."""
    _, settled = await said(tx, state.agent_id)
    cursor = await tx.execute(
        """SELECT position, content FROM messages
           WHERE agent_id = %s AND position >= %s AND position < %s
             AND role <> 'system' AND content <> ''
           ORDER BY position LIMIT %s""",
        [state.agent_id, state.embedded_to, settled, limit],
    )
    rows = [(row["position"], row["content"]) for row in await cursor.fetchall()]
    return Pending(rows, settled if len(rows) < limit else rows[-1][0] + 1)


async def store(
    tx: Transaction, state: Embedded, batch: Pending, vectors: Sequence[PartVector]
) -> bool:
    """Store the vectors of a batch, and how far they go.

    Returns:
        Whether they were stored; not if another one has gone on from the same place.
    """
    cursor = await tx.execute(
        """UPDATE recall_embeddings SET embedded_to = %(until)s, messages = messages + %(messages)s,
               updated_at = now()
           WHERE agent_id = %(agent_id)s AND model = %(model)s AND dimension = %(dimension)s
             AND embedded_to = %(embedded_to)s""",
        {
            "until": batch.until,
            "messages": len({part.position for part in vectors}),
            "agent_id": state.agent_id,
            "model": state.model,
            "dimension": state.dimension,
            "embedded_to": state.embedded_to,
        },
    )
    if cursor.rowcount == 0:
        return False
    await tx.execute(
        sql.SQL(
            """INSERT INTO {} (agent_id, position, part, tenant, embedding)
               SELECT %s, v.position, v.part, %s, v.embedding
               FROM unnest(%s::bigint[], %s::integer[], %s::halfvec[]) AS v (position, part, embedding)"""
        ).format(sql.Identifier(state.table)),
        [
            state.agent_id,
            state.tenant,
            [part.position for part in vectors],
            [part.part for part in vectors],
            [HalfVector(list(part.vector)) for part in vectors],
        ],
    )
    return True


async def forget_other_models(tx: Transaction, state: Embedded) -> None:
    """Delete the agent's vectors of other models, once those of this one are complete."""
    cursor = await tx.execute(
        f"""SELECT {_EMBEDDED} FROM recall_embeddings
            WHERE agent_id = %s AND (model, dimension) <> (%s, %s)""",
        [state.agent_id, state.model, state.dimension],
    )
    for row in await cursor.fetchall():
        other = Embedded(**row)
        await tx.execute(
            sql.SQL("DELETE FROM {} WHERE agent_id = %s").format(sql.Identifier(other.table)),
            [other.agent_id],
        )
        await tx.execute(
            "DELETE FROM recall_embeddings WHERE agent_id = %s AND model = %s AND dimension = %s",
            [other.agent_id, other.model, other.dimension],
        )
