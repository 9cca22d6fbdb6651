"""Several retrievers' orders made one: passages by reciprocal rank fusion, messages by what their scores are.

Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009: each order gives what it found 1 / (k + rank).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.messages import PassageSource, Retriever
from memserver.storage.passage_search import Ranked

RANK_CONSTANT = 5
"""The k of the formula. The paper has 60, for the ranks of many systems; of two, one that ranks a passage
first should count: 2 to 10 found more on all of our data (docs/concepts.md)."""
WORDS_WEIGHT = 2.5
"""What all words of a query weigh against the nearest meaning. 1 to 3 find alike on conversations that were written to
train on; the weight was chosen there."""


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


def weigh(held: Mapping[int, float], near: Mapping[int, float]) -> list[int]:
    """What words and meaning find, best first, each once.

    Their scores count, not their ranks (Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval",
    TOIS 2023): a message that shares a single common word with a question may be the first by its words.

    Args:
        held: how much of the query's words each holds; 1 is about all.
        near: how similar each is in meaning; on any scale, as embedders differ: the least found counts as 0, the most as 1.
    """
    least = min(near.values(), default=0.0)
    spread = max(near.values(), default=0.0) - least

    def score(key: int) -> float:
        meaning = 0.0 if key not in near else (near[key] - least) / spread if spread else 1.0
        return meaning + WORDS_WEIGHT * held.get(key, 0.0)

    return sorted({**held, **near}, key=lambda key: -score(key))


def _sum_gains(orders: Iterable[Sequence[UUID]]) -> dict[UUID, float]:
    scores: dict[UUID, float] = {}
    for order in orders:
        for rank, key in enumerate(order, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (RANK_CONSTANT + rank)
    return scores
