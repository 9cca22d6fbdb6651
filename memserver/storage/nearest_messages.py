"""The messages nearest to a vector: compared one by one where they are few, by an index where they are many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgvector import HalfVector
from psycopg import sql

from memserver.storage import message_vectors
from memserver.storage.database import Transaction
from memserver.storage.message_vectors import Embedded, Near
from memserver.storage.recall import RecallQuery, Span, count_and_positions

PARTS_SLACK = 20


async def nearest(
    tx: Transaction, state: Embedded, vector: Sequence[float], query: RecallQuery, limit: int
) -> list[Near]:
    """The messages most similar to a vector, best first.

    Args:
        tx: in the tenant's scope.
        state: how far the history has vectors; what was said later isn't found.
        vector: of the embedding model that `state` names.
        query: narrows the messages by dates, roles and `before`; its text counts for nothing here.
        limit: messages at most; long ones that crowd the first places leave fewer.
    """
    before = state.embedded_to if query.before is None else min(state.embedded_to, query.before)
    query = replace(query, text=None, before=before)
    search = _Search(tx, state, vector, limit)
    if _is_all(query, state):
        return await search.best(None)
    few = Span(message_vectors.LARGE, count_to=message_vectors.LARGE)
    _, exact, positions = await count_and_positions(tx, state.agent_id, query, few)
    return await search.among(positions) if exact else await search.best(query)


def _is_all(query: RecallQuery, state: Embedded) -> bool:
    return (
        query.since is None
        and query.until is None
        and query.before == state.embedded_to
        and {"user", "assistant"} <= set(query.roles)
    )


_COMPARED = sql.SQL(
    """SELECT v.position, v.part, v.embedding <=> %(vector)s AS distance FROM {table} v {narrowing}
       WHERE v.agent_id = %(agent_id)s"""
)
_NARROWING = sql.SQL(
    """JOIN messages m ON m.agent_id = v.agent_id AND m.position = v.position
           AND m.role = ANY (%(roles)s) AND m.position < %(before)s
           AND m.created_at >= coalesce(%(since)s, '-infinity'::timestamptz)
           AND m.created_at < coalesce(%(until)s, 'infinity'::timestamptz)"""
)
# The sum keeps the index out of it.
_BEST = sql.SQL("{compared} ORDER BY (v.embedding <=> %(vector)s) + 0 LIMIT %(candidates)s")
_AMONG = sql.SQL(
    """{compared} AND v.position = ANY (%(positions)s)
       ORDER BY (v.embedding <=> %(vector)s) + 0 LIMIT %(candidates)s"""
)
_BY_INDEX = sql.SQL(
    "{compared} AND v.large ORDER BY v.embedding <=> %(vector)s LIMIT %(candidates)s"
)


@dataclass(frozen=True, slots=True)
class _Search:
    tx: Transaction
    state: Embedded
    vector: Sequence[float]
    limit: int

    async def among(self, positions: Sequence[int]) -> list[Near]:
        """The best of these messages."""
        return await self._run(_AMONG, None, positions=list(positions))

    async def best(self, narrowing: RecallQuery | None) -> list[Near]:
        """The best of many, by the index unless that lacks some or gives up."""
        if self.state.in_index:
            await self.tx.execute(
                """SELECT set_config('hnsw.iterative_scan', 'strict_order', true),
                          set_config('hnsw.ef_search', '400', true)"""
            )
            found = await self._run(_BY_INDEX, narrowing)
            if len(found) == self.limit:
                return found
        return await self._run(_BEST, narrowing)

    async def _run(
        self, query: sql.SQL, narrowing: RecallQuery | None, **parameters: object
    ) -> list[Near]:
        compared = _COMPARED.format(
            table=sql.Identifier(self.state.table),
            narrowing=sql.SQL("") if narrowing is None else _NARROWING,
        )
        cursor = await self.tx.execute(
            query.format(compared=compared),
            {
                "vector": HalfVector(list(self.vector)),
                "agent_id": self.state.agent_id,
                "candidates": 2 * self.limit + PARTS_SLACK,
                **_parameters(narrowing),
                **parameters,
            },
        )
        best: dict[int, Near] = {}
        for row in await cursor.fetchall():
            near = Near(row["position"], 1 - row["distance"], row["part"])
            best.setdefault(near.position, near)
        return list(best.values())[: self.limit]


def _parameters(narrowing: RecallQuery | None) -> dict[str, object]:
    if narrowing is None:
        return {}
    return {
        "roles": list(narrowing.roles),
        "before": narrowing.before,
        "since": narrowing.since,
        "until": narrowing.until,
    }
