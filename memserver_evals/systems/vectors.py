"""Plain top-k of vectors: each text embedded by itself, the nearest by cosine, nothing else."""

import hashlib
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np

from memserver.embeddings.base import Embedder
from memserver_evals.systems.history import Piece
from memserver_evals.systems.shared import Shared

_MOST_KEPT = 64
_AT_ONCE = 256

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class VectorIndex:
    """Vectors of pieces, made once for each set of pieces."""

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        """`folder`: where vectors are kept between runs; None: nowhere."""
        self.embedder = embedder
        self._folder = folder
        self._made: Shared[Hashable, Matrix] = Shared(_MOST_KEPT)

    async def nearest(
        self, name: Hashable | None, pieces: Sequence[Piece], question: str, count: int
    ) -> list[Piece]:
        """The pieces nearest to a question, best first; of equally near ones the first in order.

        `name` is of this set of pieces; None takes their texts for it.
        """
        if not pieces:
            return []
        texts = [piece.text for piece in pieces]
        matrix = await self._made.get(name or tuple(texts), lambda: self._load_or_make(texts))
        vector = await self.embedder.embed_query(question)
        near = matrix @ np.asarray(vector, dtype=np.float32)
        best = np.argsort(-near, kind="stable")[:count]
        return [pieces[int(index)] for index in best]

    async def _load_or_make(self, texts: Sequence[str]) -> Matrix:
        path = self._path(texts)
        if path is not None and path.exists():
            return np.load(path)  # type: ignore[no-any-return]
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _AT_ONCE):
            vectors += await self.embedder.embed(list(texts[start : start + _AT_ONCE]))
        matrix: Matrix = np.asarray(vectors, dtype=np.float32)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new.npy")
            np.save(new, matrix)
            new.replace(path)
        return matrix

    def _path(self, texts: Sequence[str]) -> Path | None:
        """Where the vectors of many texts are kept; few are made each time."""
        if self._folder is None or len(texts) < _AT_ONCE:
            return None
        digest = hashlib.sha256(self.embedder.model.encode())
        for text in texts:
            digest.update(b"\0" + text.encode(errors="replace"))
        return self._folder / f"{digest.hexdigest()[:32]}.npy"
