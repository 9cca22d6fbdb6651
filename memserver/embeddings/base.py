"""The contract every embedder keeps."""

from collections.abc import Sequence
from typing import Protocol

Vector = list[float]


class Embedder(Protocol):
    """Turns texts into vectors of unit length.

    Attributes:
        model: the name stored with every collection, so that vectors of two models never meet.
        dimension: length of its vectors; 0 while an endpoint has not been asked yet.
        window: tokens of a text that it reads; the rest has no part in the vector. 0 while an endpoint has
            not been asked yet, by `count_tokens`.
    """

    model: str
    dimension: int
    window: int

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, those included that frame it; an upper bound where the tokenizer isn't known.

        Raises:
            EmbeddingError: there is no counting.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Embed each text; same order, same length as `texts`.

        Raises:
            EmbeddingError: the embedder failed, or answered with another dimension.
        """
        ...

    async def check(self) -> None:
        """Ask whether texts could be embedded now. Raises EmbeddingError if not."""
        ...

    async def aclose(self) -> None:
        """Give back threads and connections."""
        ...
