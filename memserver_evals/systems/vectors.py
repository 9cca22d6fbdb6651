"""Plain top-k of vectors: each text embedded by itself, the nearest by cosine, nothing else."""

from collections.abc import Hashable, Sequence

import numpy as np

from memserver.embeddings.base import Embedder
from memserver_evals.progress import bar
from memserver_evals.systems.shared import Shared

_MOST_KEPT = 64
_AT_ONCE = 256

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class VectorIndex:
    """Vectors of texts, made once for each set of texts."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._made: Shared[Hashable, Matrix] = Shared(_MOST_KEPT)

    async def nearest(
        self, name: Hashable | None, texts: Sequence[str], question: str, count: int
    ) -> list[int]:
        """The places of the texts nearest to a question, best first; of equally near ones the first in order.

        `name` is of this set of texts; None takes themselves for it.
        """
        if not texts:
            return []
        matrix = await self._made.get(name or tuple(texts), lambda: self._embed(texts))
        vector = await self.embedder.embed_query(question)
        near = matrix @ np.asarray(vector, dtype=np.float32)
        return [int(place) for place in np.argsort(-near, kind="stable")[:count]]

    async def _embed(self, texts: Sequence[str]) -> Matrix:
        if len(texts) <= _AT_ONCE:
            return np.asarray(await self.embedder.embed(texts), dtype=np.float32)
        parts = []
        with bar("embedding", len(texts)) as advance:
            for start in range(0, len(texts), _AT_ONCE):
                part = texts[start : start + _AT_ONCE]
                parts.append(np.asarray(await self.embedder.embed(part), dtype=np.float32))
                advance(len(part))
        return np.concatenate(parts)
