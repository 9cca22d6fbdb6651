"""A deterministic embedder without a model, for tests: texts that share words lie near each other."""

import hashlib
import math
import re
from collections.abc import Sequence
from functools import lru_cache

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector, embeddable

_WORD = re.compile(r"\w+")


class HashingEmbedder(Embedder):
    """Hashes each word to one of the vector's places, with a sign, and scales to unit length."""

    def __init__(self, dimension: int = 384, *, model: str = "hashing", window: int = 256) -> None:
        self.model = model
        self.dimension = dimension
        self.window = window

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """A word is a token."""
        return [len(_WORD.findall(text)) for text in texts]

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._vector(embeddable(text)) for text in texts]

    @override
    async def check(self) -> None:
        """Is always there."""

    @override
    async def aclose(self) -> None:
        return None

    def _vector(self, text: str) -> Vector:
        vector = [0.0] * self.dimension
        for word in _WORD.findall(text.lower())[: self.window]:
            number = _hash(word)
            vector[(number >> 1) % self.dimension] += 1.0 if number & 1 else -1.0
        length = math.sqrt(sum(value * value for value in vector))
        if length == 0:
            return [1.0] + [0.0] * (self.dimension - 1)
        return [value / length for value in vector]


@lru_cache(maxsize=100_000)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
