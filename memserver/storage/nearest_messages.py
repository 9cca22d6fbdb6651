"""The messages nearest to a vector: compared one by one where they are few, by an index where they are many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgvector import HalfVector
from psycopg import sql

from memserver.storage import message_vectors
from memserver.storage.database import Transaction
from memserver.storage.message_vectors import EmbeddedHistory, VectorHit
from memserver.storage.recall import MATCHES, RecallQuery, SearchWindow, search_parameters

PARTS_SLACK = 20


async def nearest(
    tx: Transaction, state: EmbeddedHistory, vector: Sequence[float], query: RecallQuery, limit: int
) -> list[VectorHit]:
    """The messages most similar to a vector, of the model that `state` names, best first.

    The query narrows them by dates, roles and `before`; its text counts for nothing here. Long messages that
    crowd the first places leave fewer than `limit`.
    """
    before = state.embedded_to if query.before is None else min(state.embedded_to, query.before)
    query = replace(query, text=None, before=before)
    search = _Search(tx, state, vector, limit)
    dated = query.since is not None or query.until is not None
    if not dated and before == state.embedded_to and {"user", "assistant"} <= set(query.roles):
        return await search.best(None)
    if not dated and state.in_index:
        return await search.best(query)
    among = await search.among_few(query)
    return await search.best(query) if among is None else among


_COMPARED = sql.SQL(
    """SELECT v.position, v.part, v.embedding <=> %(vector)s AS distance FROM {table} v {narrowing}
       WHERE v.agent_id = %(agent_id)s"""
)
_NOTHING = sql.SQL("")
_NARROWING = sql.SQL(
    """JOIN messages m ON m.agent_id = v.agent_id AND m.position = v.position
           AND m.role = ANY (%(roles)s) AND m.position < %(before)s
           AND m.created_at >= coalesce(%(since)s, '-infinity'::timestamptz)
           AND m.created_at < coalesce(%(until)s, 'infinity'::timestamptz)"""
)
# The sum keeps the index out of it.
_BEST = sql.SQL("{compared} ORDER BY (v.embedding <=> %(vector)s) + 0 LIMIT %(candidates)s")
_AMONG_FEW = sql.SQL(
    """WITH few AS MATERIALIZED (SELECT exact, positions FROM {matches})
       SELECT few.exact, v.* FROM few LEFT JOIN LATERAL (
           {compared} AND few.exact AND v.position = ANY (few.positions)
           ORDER BY (v.embedding <=> %(vector)s) + 0 LIMIT %(candidates)s) v ON true
       ORDER BY v.distance"""
)
_BY_INDEX = sql.SQL(
    "{compared} AND v.large ORDER BY v.embedding <=> %(vector)s LIMIT %(candidates)s"
)


@dataclass(frozen=True, slots=True)
class _Search:
    tx: Transaction
    state: EmbeddedHistory
    vector: Sequence[float]
    limit: int

    async def among_few(self, narrowing: RecallQuery) -> list[VectorHit] | None:
        """The best of the messages that a query lets through; None if these are too many to compare one by one."""
        few = SearchWindow(message_vectors.LARGE, count_to=message_vectors.LARGE)
        rows = await self._rows(
            _AMONG_FEW.format(matches=sql.SQL(MATCHES), compared=self._compared()),
            {**search_parameters(self.state.agent_id, narrowing, few), "candidates": self._most},
        )
        return self._best(rows) if rows[0]["exact"] else None

    async def best(self, narrowing: RecallQuery | None) -> list[VectorHit]:
        """The best of many, by the index unless that lacks some or gives up."""
        if self.state.in_index:
            await self.tx.execute(
                """SELECT set_config('hnsw.iterative_scan', 'strict_order', true),
                          set_config('hnsw.ef_search', '400', true)"""
            )
            # Few messages have several parts; where these crowd the first places, more are read.
            for candidates in (self.limit + PARTS_SLACK, self._most):
                found = await self._run(_BY_INDEX, narrowing, candidates)
                if len(found) == self.limit:
                    return found
        return await self._run(_BEST, narrowing, self._most)

    @property
    def _most(self) -> int:
        return 2 * self.limit + PARTS_SLACK

    async def _run(
        self, query: sql.SQL, narrowing: RecallQuery | None, candidates: int
    ) -> list[VectorHit]:
        compared = self._compared(_NOTHING if narrowing is None else _NARROWING)
        parameters = {**_parameters(narrowing), "candidates": candidates}
        return self._best(await self._rows(query.format(compared=compared), parameters))

    def _compared(self, narrowing: sql.SQL = _NOTHING) -> sql.Composed:
        return _COMPARED.format(table=sql.Identifier(self.state.table), narrowing=narrowing)

    async def _rows(self, query: sql.Composed, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        cursor = await self.tx.execute(
            query,
            {
                "vector": HalfVector(list(self.vector)),
                "agent_id": self.state.agent_id,
                **parameters,
            },
            prepare=False,  # a plan for any narrowing takes ten times as long as one for this narrowing
        )
        return await cursor.fetchall()

    def _best(self, rows: Sequence[dict[str, Any]]) -> list[VectorHit]:
        """The nearest part of each message."""
        best: dict[int, VectorHit] = {}
        for row in rows:
            if row["position"] is not None:
                hit = VectorHit(row["position"], 1 - row["distance"], row["part"])
                best.setdefault(hit.position, hit)
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
