"""Several retrievers' orders made one, by reciprocal rank fusion.

Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009: each order gives what it found 1 / (k + rank).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from memserver.messages import PassageSource, Retriever
from memserver.storage.passage_search import Ranked

RANK_CONSTANT = 5
"""The k of the formula. The paper has 60, for the ranks of many systems; of two, one that ranks a passage
first should count: 2 to 10 found more on all of our data (docs/concepts.md)."""
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Fused:
    ranked: Ranked
    score: float
    sources: tuple[PassageSource, ...]


def fuse(orders: Sequence[tuple[Retriever, Sequence[Ranked]]]) -> list[Fused]:
    """What the retrievers found, best first; of a single one, with the scores that it gave."""
    scores = _sum_gains([[each.passage_id for each in found] for _, found in orders])
    sources: dict[UUID, list[PassageSource]] = {}
    ranked: dict[UUID, Ranked] = {}
    for retriever, found in orders:
        for rank, each in enumerate(found, 1):
            sources.setdefault(each.passage_id, []).append(
                PassageSource(retriever, rank, each.score)
            )
            ranked[each.passage_id] = each
    if len(orders) == 1:
        scores = {id_: each.score for id_, each in ranked.items()}
    best = sorted(scores, key=lambda passage: (-scores[passage], passage))
    return [Fused(ranked[id_], scores[id_], tuple(sources[id_])) for id_ in best]


def fuse_orders(orders: Sequence[Sequence[int]]) -> list[int]:
    """What several orders hold, best first, each once."""
    scores = _sum_gains(orders)
    return sorted(scores, key=lambda key: -scores[key])


def _sum_gains(orders: Iterable[Sequence[T]]) -> dict[T, float]:
    scores: dict[T, float] = {}
    for order in orders:
        for rank, key in enumerate(order, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (RANK_CONSTANT + rank)
    return scores
