"""Passages that are made up: vectors in clusters, texts of words as frequent as in a language."""

from typing import Any

import numpy as np

DIMENSION = 384
CENTRES = 2_000
INNER_DIMENSIONS = 32
SPREAD = 0.9
"""How far a vector lies from its centre: the length of what is added to the centre's, which is 1."""
QUERY_DISTANCE = 0.35
"""How far a query lies from the passage it is made of, likewise."""
VOCABULARY = 50_000
WORDS = 12
WORDS_OF_QUERY = 5


class GeneratedPassages:
    """The passages of one collection, always the same for a seed and a number."""

    def __init__(self, seed: int, number: int, size: int) -> None:
        shared = np.random.default_rng(seed)
        self._basis = shared.standard_normal((INNER_DIMENSIONS, DIMENSION)) / DIMENSION**0.5
        self._centres = _unit(shared.standard_normal((CENTRES, DIMENSION)))
        self._random = np.random.default_rng([seed, number])
        weights = 1 / np.arange(2, VOCABULARY + 2)
        self._cumulated = np.cumsum(weights / weights.sum())
        # A collection has a few subjects; a large one has all.
        subjects = max(3, min(CENTRES, size // 50))
        self._subjects = self._random.choice(CENTRES, subjects, replace=False)

    def next(self, count: int) -> tuple[Any, list[str]]:
        """Vectors of unit length, one in each row, and as many texts."""
        return self._vectors(count), [self._text(WORDS) for _ in range(count)]

    def queries(self, count: int) -> tuple[Any, list[str]]:
        """Vectors and texts like those of the passages, each moved away a little."""
        noise = _unit(self._random.standard_normal((count, DIMENSION))) * QUERY_DISTANCE
        return _unit(self._vectors(count) + noise), [
            self._text(WORDS_OF_QUERY) for _ in range(count)
        ]

    def _vectors(self, count: int) -> Any:  # noqa: ANN401 - numpy's types are long
        centres = self._centres[self._random.choice(self._subjects, count)]
        inner = self._random.standard_normal((count, INNER_DIMENSIONS)) / INNER_DIMENSIONS**0.5
        return _unit(centres + SPREAD * inner @ self._basis).astype(np.float32)

    def _text(self, words: int) -> str:
        chosen = np.searchsorted(self._cumulated, self._random.random(words))
        return " ".join(f"w{number}" for number in chosen)


def _unit(rows: Any) -> Any:  # noqa: ANN401 - numpy's types are long
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
