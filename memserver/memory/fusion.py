"""Several retrievers' orders made one, by reciprocal rank fusion.

Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009: each order gives what it found 1 / (k + rank).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.messages import Retriever, Source
from memserver.storage.passage_search import Ranked

RANK_CONSTANT = 5
"""The k of the formula. The paper has 60, for the ranks of many systems; of two, one that ranks a passage
first should count: 2 to 10 found more on all of our data (docs/concepts.md)."""
WEIGHTS: dict[Retriever, float] = {"vector": 1.0, "text": 1.0}


@dataclass(frozen=True, slots=True)
class Order:
    retriever: Retriever
    found: Sequence[Ranked]


@dataclass(frozen=True, slots=True)
class Fused:
    ranked: Ranked
    score: float
    sources: tuple[Source, ...]


def fuse(orders: Sequence[Order]) -> list[Fused]:
    """The passages of all orders, best first; of a single order, with the scores that it has."""
    scores: dict[UUID, float] = {}
    sources: dict[UUID, list[Source]] = {}
    ranked: dict[UUID, Ranked] = {}
    for order in orders:
        weight = WEIGHTS[order.retriever]
        for rank, found in enumerate(order.found, 1):
            gain = found.score if len(orders) == 1 else weight / (RANK_CONSTANT + rank)
            scores[found.passage_id] = scores.get(found.passage_id, 0.0) + gain
            source = Source(order.retriever, rank, found.score)
            sources.setdefault(found.passage_id, []).append(source)
            ranked[found.passage_id] = found
    best = sorted(scores, key=lambda passage: (-scores[passage], passage))
    return [Fused(ranked[id_], scores[id_], tuple(sources[id_])) for id_ in best]


def fused_order(orders: Sequence[Sequence[int]]) -> list[int]:
    """What several orders hold, best first, each once."""
    scores: dict[int, float] = {}
    for order in orders:
        for rank, key in enumerate(order, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores, key=lambda key: -scores[key])
