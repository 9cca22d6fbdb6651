"""The contract every embedder keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from memserver.errors import EmbeddingError
from memserver.text import clean
from memserver.tokenizer_file import TokenizerFile

Vector = list[float]
LONGEST = 20_000
"""Characters of a text that are read: models see a few hundred tokens, and tokenizing the rest is waste."""
MOST_DIMENSIONS = 4000
"""Of a vector that can be stored and indexed: pgvector's halfvec."""


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

    @property
    def batch_size(self) -> int:
        """Texts that are embedded together, at most."""
        return 32

    @property
    def queries_differ(self) -> bool:
        """Whether a query has to be embedded as one, by `embed_query`."""
        return False

    def describe(self) -> str:
        """What is known of it, for people."""
        return f"{self.model}, {self.dimension or 'unknown'} dimensions"

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, those included that frame it; an upper bound where the tokenizer isn't known.

        Raises:
            EmbeddingError: there is no counting.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Embed each text; same order, same length as `texts`.

        Raises:
            EmbeddingRejected: a text is refused, or all are, and will be again.
            EmbeddingError: the embedder failed, or answered with another dimension.
        """
        ...

    async def embed_query(self, text: str) -> Vector:
        """Embed what is looked for. Raises as `embed` does."""
        [vector] = await self.embed([text])
        return vector

    async def check(self) -> None:
        """Ask whether texts could be embedded now. Raises EmbeddingError if not."""
        ...

    async def aclose(self) -> None:
        """Give back threads and connections."""
        ...


def embeddable(text: str) -> str:
    """The beginning of the text, without what no tokenizer takes. Every embedder passes its input through here."""
    return clean(text[:LONGEST])


def tokenizer_of(path: Path) -> TokenizerFile:
    """An embedder's tokenizer.json, or the folder with it; it counts what frames a text too."""
    setting = "MEMSERVER_EMBEDDING_TOKENIZER"
    return TokenizerFile(path, special_tokens=True, error=EmbeddingError, setting=setting)
