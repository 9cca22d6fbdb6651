"""An embedder behind any OpenAI-compatible /v1/embeddings.

Owns the wire and the translation of its errors. Leaves batching across requests to `batching`, and
what to do about another dimension to the collection that meets it.
"""

import json
import math
from collections.abc import Sequence
from typing import Self, TypeGuard

import httpx2
import openai
from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.text import embeddable
from memserver.errors import EmbeddingError, SetupError

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

        Raises:
            SetupError: the address is no URL.
        """
        self.model = model
        self.dimension = dimension
        try:
            self._client = openai.AsyncOpenAI(
                base_url=base_url,
                api_key=api_key or "none",
                timeout=timeout,
                max_retries=max_retries,
            )
        except httpx2.InvalidURL as error:
            raise SetupError(
                f"The address of the embedding endpoint is no URL: {error}",
                hint="Mend MEMSERVER_EMBEDDING_BASE_URL: http://host:port/v1.",
            ) from error
        # The SDK takes these from the environment; they are OpenAI's own, not every endpoint's.
        self._client.organization = None
        self._client.project = None

    async def connected(self) -> Self:
        """This embedder, its dimension known.

        Raises:
            EmbeddingError: the endpoint gave no vector.
        """
        if not self.dimension:
            await self.embed(["dimension"])
        return self

    @override
    async def check(self) -> None:
        """Embed one word. Raises EmbeddingError where that fails."""
        await self.embed(["check"])

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        readable = [embeddable(text) or " " for text in texts]
        asked = {"input": readable, "model": self.model, "encoding_format": "float"}
        try:
            answer = await self._client.post("/embeddings", body=asked, cast_to=httpx2.Response)
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise _translated(error) from error
        vectors = _vectors(answer.content)
        if len(vectors) != len(texts):
            raise EmbeddingError(
                f"The embedding endpoint gave {len(vectors)} vectors for {len(texts)} texts."
            )
        return [self._unit(vector) for vector in vectors]

    @override
    async def aclose(self) -> None:
        await self._client.close()

    def _unit(self, vector: object) -> Vector:
        if not _is_vector(vector):
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


def _vectors(content: bytes) -> list[object]:
    """What stands for the vectors in an answer, in the order of the texts, not yet checked."""
    try:
        answer = json.loads(content)
        items = sorted(answer["data"], key=lambda item: item["index"])
        return [item["embedding"] for item in items]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise EmbeddingError(
            "The answer is not what an OpenAI-compatible embedding endpoint sends.",
            hint="Check that MEMSERVER_EMBEDDING_BASE_URL ends in /v1.",
        ) from error


def _is_vector(value: object) -> TypeGuard[list[float]]:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(part) in {int, float} for part in value)
    )


def _translated(error: Exception) -> EmbeddingError:
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
