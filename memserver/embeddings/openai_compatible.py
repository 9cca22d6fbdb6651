"""An embedder behind any OpenAI-compatible /v1/embeddings.

Owns the wire and the translation of its errors. Leaves batching across requests to `batching`, and
what to do about another dimension to the collection that meets it.
"""

import math
from collections.abc import Sequence
from typing import Self

import openai
from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.text import embeddable
from memserver.errors import EmbeddingError

_HINTS = {
    401: "Set MEMSERVER_EMBEDDING_API_KEY to a key that this endpoint takes.",
    403: "The key in MEMSERVER_EMBEDDING_API_KEY may not use this model.",
    404: "Check MEMSERVER_EMBEDDING_MODEL, and that MEMSERVER_EMBEDDING_BASE_URL ends in /v1.",
}


class OpenAICompatibleEmbedder(Embedder):
    """Embeds over HTTP and scales what comes back to unit length.

    Attributes:
        dimension: as given, else 0 until the first answer; `connected` asks for it.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        dimension: int = 0,
        timeout: float = 60,
        max_retries: int = 2,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            base_url: the endpoint, ending in /v1.
            model: what the endpoint calls the model.
            api_key: empty for an endpoint that wants none.
            dimension: of the vectors; 0 takes what the first answer has.
            timeout: seconds for one request.
            max_retries: of a request that failed on the way or with a 5xx.
        """
        self.model = model
        self.dimension = dimension
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key=api_key or "none", timeout=timeout, max_retries=max_retries
        )

    async def connected(self) -> Self:
        """This embedder, its dimension known.

        Raises:
            EmbeddingError: the endpoint gave no vector.
        """
        if not self.dimension:
            await self.embed(["dimension"])
        return self

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        readable = [embeddable(text) or " " for text in texts]
        try:
            answer = await self._client.embeddings.create(
                input=readable, model=self.model, encoding_format="float"
            )
        except openai.OpenAIError as error:
            raise _translated(error) from error
        data = sorted(answer.data or (), key=lambda item: item.index)
        if len(data) != len(texts):
            raise EmbeddingError(
                f"The embedding endpoint gave {len(data)} vectors for {len(texts)} texts."
            )
        return [self._unit(item.embedding) for item in data]

    @override
    async def aclose(self) -> None:
        await self._client.close()

    def _unit(self, vector: Sequence[float]) -> Vector:
        if not vector or not all(isinstance(value, int | float) for value in vector):
            raise EmbeddingError(
                "The embedding endpoint's answer holds no vector of numbers.",
                hint="The model may not be one for sentence embeddings (pooling is off).",
            )
        if self.dimension and len(vector) != self.dimension:
            raise EmbeddingError(
                f"The model {self.model} gave {len(vector)} dimensions instead of {self.dimension}.",
                hint="Another model answers under this name. Restore it, or re-embed the collections.",
            )
        length = math.sqrt(math.fsum(value * value for value in vector))
        if not (math.isfinite(length) and length > 0):
            raise EmbeddingError(f"The model {self.model} gave a vector without a direction.")
        self.dimension = len(vector)
        return [value / length for value in vector]


def _translated(error: openai.OpenAIError) -> EmbeddingError:
    if isinstance(error, openai.APITimeoutError):
        return EmbeddingError("The embedding endpoint did not answer in time.")
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        return EmbeddingError(
            f"The embedding endpoint answered {status}: {str(error.message)[:500]}",
            hint=_HINTS.get(status, ""),
        )
    return EmbeddingError(
        f"The embedding endpoint can't be used: {str(error)[:500]}",
        hint="Check that MEMSERVER_EMBEDDING_BASE_URL is right and that it is up.",
    )
