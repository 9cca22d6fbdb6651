"""The messages nearest to a vector: compared one by one where they are few, by an index where they are many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgvector import HalfVector
from psycopg import sql

from memserver.storage.database import Transaction
from memserver.storage.recall import RecallQuery, Span, count_and_positions
from memserver.storage.recall_vectors import Embedded, Near

EXACT_UP_TO = 10_000
"""Messages that are compared one by one: below it an index finds less and is no faster."""
FEW = 2_000
"""Matches that are looked up by their positions, however many vectors the agent has."""
LEAST_SHARE = 0.05
"""Of an agent's messages; of fewer the index would pass over too many others."""
DEEPEST_BY_INDEX = 200
"""Results that the index is asked for; whoever pages on has all compared."""
PARTS_SLACK = 20


@dataclass(frozen=True, slots=True)
class Nearest:
    """One page, best first, and how many messages there are to be ordered; `exact` as in a search."""

    found: tuple[Near, ...]
    total: int
    exact: bool


async def nearest(
    tx: Transaction, state: Embedded, vector: Sequence[float], query: RecallQuery, span: Span
) -> Nearest:
    """Order the messages that a query matches by their similarity to a vector.

    Args:
        tx: in the tenant's scope.
        state: how far the history has vectors; what was said later isn't found.
        vector: of the embedding model that `state` names.
        query: narrows the messages by any of its parts.
        span: which part of the order is wanted.
    """
    before = state.embedded_to if query.before is None else min(state.embedded_to, query.before)
    query = replace(query, before=before)
    search = _Search(tx, state, vector, span)
    if _is_all(query, state):
        return await search.best(None, state.messages)
    # Counting texts is dear: then all positions are asked for at once.
    wanted = Span(FEW if query.text is None else EXACT_UP_TO, count_to=EXACT_UP_TO)
    total, exact, positions = await count_and_positions(tx, state.agent_id, query, wanted)
    if not exact:
        return await search.best(query, total, exact=False)
    if total > FEW and LEAST_SHARE * state.messages <= total and state.messages > EXACT_UP_TO:
        return await search.best(query, total)
    if len(positions) < total:
        wanted = replace(wanted, limit=EXACT_UP_TO)
        _, _, positions = await count_and_positions(tx, state.agent_id, query, wanted)
    found = await search.among(positions) if search.is_there(total) else ()
    return Nearest(found, total, exact)


def _is_all(query: RecallQuery, state: Embedded) -> bool:
    return (
        query.text is None
        and query.since is None
        and query.until is None
        and query.before == state.embedded_to
        and {"user", "assistant"} <= set(query.roles)
    )


_BEST = sql.SQL(
    """SELECT position, 1 - min(distance) AS score FROM ({compared}) n
       GROUP BY position ORDER BY min(distance), position DESC
       LIMIT %(limit)s OFFSET %(offset)s"""
)
_COMPARED = sql.SQL(
    """SELECT v.position, v.embedding <=> %(vector)s AS distance FROM {table} v {narrowing}
       WHERE v.agent_id = %(agent_id)s"""
)
_AMONG = sql.SQL("{compared} AND v.position = ANY (%(positions)s)")
_NEAREST = sql.SQL("{compared} ORDER BY v.embedding <=> %(vector)s LIMIT %(candidates)s")
_NARROWING = sql.SQL(
    """JOIN messages m ON m.agent_id = v.agent_id AND m.position = v.position
           AND m.role = ANY (%(roles)s) AND m.position < %(before)s
           AND m.created_at >= coalesce(%(since)s, '-infinity'::timestamptz)
           AND m.created_at < coalesce(%(until)s, 'infinity'::timestamptz)
           AND CASE WHEN %(text)s::text IS NULL THEN true
                    WHEN %(any_case)s THEN strpos(recall_fold(m.content), recall_fold(%(text)s)) > 0
                    ELSE strpos(m.content, %(text)s) > 0 END"""
)


@dataclass(frozen=True, slots=True)
class _Search:
    tx: Transaction
    state: Embedded
    vector: Sequence[float]
    span: Span

    def is_there(self, total: int) -> bool:
        """Whether any of so many results lie in the span."""
        return self.span.limit > 0 and self.span.offset < total

    async def best(
        self, narrowing: RecallQuery | None, total: int, *, exact: bool = True
    ) -> Nearest:
        """The best of many, by the index where that finds them all."""
        end = self.span.offset + self.span.limit
        if self.span.limit <= 0 or (exact and not self.is_there(total)):
            return Nearest((), total, exact)
        if self.state.messages > EXACT_UP_TO and end <= DEEPEST_BY_INDEX:
            found = await self.by_index(narrowing)
            if len(found) == min(self.span.limit, total - self.span.offset):
                return Nearest(found, total, exact)
        return Nearest(await self.one_by_one(narrowing), total, exact)

    async def among(self, positions: Sequence[int]) -> tuple[Near, ...]:
        """The best of these messages."""
        compared = _AMONG.format(compared=self._compared(None))
        return await self._run(compared, positions=list(positions))

    async def one_by_one(self, narrowing: RecallQuery | None) -> tuple[Near, ...]:
        """The best, all compared."""
        return await self._run(self._compared(narrowing), **_parameters(narrowing))

    async def by_index(self, narrowing: RecallQuery | None) -> tuple[Near, ...]:
        """The best by the index; fewer than asked for where it gives up or long messages crowd it."""
        await self.tx.execute(
            """SELECT set_config('hnsw.iterative_scan', 'strict_order', true),
                      set_config('hnsw.ef_search', '100', true)"""
        )
        candidates = 2 * (self.span.offset + self.span.limit) + PARTS_SLACK
        compared = _NEAREST.format(compared=self._compared(narrowing))
        return await self._run(compared, candidates=candidates, **_parameters(narrowing))

    def _compared(self, narrowing: RecallQuery | None) -> sql.Composed:
        return _COMPARED.format(
            table=sql.Identifier(self.state.table),
            narrowing=sql.SQL("") if narrowing is None else _NARROWING,
        )

    async def _run(self, compared: sql.Composed, **parameters: object) -> tuple[Near, ...]:
        cursor = await self.tx.execute(
            _BEST.format(compared=compared),
            {
                "vector": HalfVector(list(self.vector)),
                "agent_id": self.state.agent_id,
                "limit": self.span.limit,
                "offset": self.span.offset,
                **parameters,
            },
        )
        return tuple(Near(row["position"], row["score"]) for row in await cursor.fetchall())


def _parameters(narrowing: RecallQuery | None) -> dict[str, object]:
    if narrowing is None:
        return {}
    return {
        "roles": list(narrowing.roles),
        "before": narrowing.before,
        "since": narrowing.since,
        "until": narrowing.until,
        "text": narrowing.text,
        "any_case": narrowing.ignore_case,
    }
