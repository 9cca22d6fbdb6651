"""An embedder behind any OpenAI-compatible /v1/embeddings.

Owns what is asked and what the answer must be. Leaves HTTP to `endpoint`, batching across requests to
`batching`, and what to do about another dimension to the collection that meets it.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Self, TypeGuard

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.text import embeddable, readable
from memserver.embeddings.tokenizer import TokenizerFile
from memserver.errors import ContextOverflow, EmbeddingError, ModelError
from memserver.messages import JsonObject
from memserver.openai_http.client import Endpoint, EndpointClient

_COMMON_WINDOW = 512
_FRAME = 2
"""Tokens that a model puts around a text, as a rule."""
SHRINK = 0.75
SHORTEST = 16
"""Characters of a text that every window takes."""


class OpenAICompatibleEmbedder(Embedder):
    """Embeds over HTTP and scales what comes back to unit length.

    Attributes:
        dimension: as given, else 0 until the first answer; `connected` asks for it.
        window: as given, else 0 until `count_tokens` has asked what the endpoint lists.
    """

    def __init__(  # noqa: PLR0913 - all but the endpoint have defaults and are named
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        dimension: int = 0,
        window: int = 0,
        tokenizer: Path | None = None,
        timeout: float = 60,
        max_retries: int = 2,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            base_url: the endpoint, ending in /v1.
            model: what the endpoint calls the model.
            api_key: empty for an endpoint that wants none.
            dimension: of the vectors; 0 takes what the first answer has.
            window: tokens of a text that the model reads; 0 takes the `max_model_len` that the endpoint
                lists, else 512.
            tokenizer: the model's tokenizer.json; without it a text's bytes bound its tokens.
            timeout: seconds for one request, retries included.
            max_retries: of a request that failed on the way or with a 5xx.

        Raises:
            SetupError: the address is no URL.
        """
        self.model = model
        self.dimension = dimension
        self.window = window
        self._tokenizer = TokenizerFile(tokenizer) if tokenizer else None
        self._client = EndpointClient(
            Endpoint(
                base_url,
                api_key,
                timeout,
                max_retries,
                title="embedding endpoint",
                variables="MEMSERVER_EMBEDDING",
            )
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
    async def check(self) -> None:
        """Embed one word. Raises EmbeddingError where that fails."""
        await self.embed(["check"])

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        if not self.window:
            self.window = await self._listed_window() or _COMMON_WINDOW
        if self._tokenizer is not None:
            return await self._tokenizer.count(texts)
        return [len(readable(text).encode()) + _FRAME for text in texts]

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        vectors = _vectors(await self._ask([embeddable(text) or " " for text in texts]))
        if len(vectors) != len(texts):
            raise EmbeddingError(
                f"The embedding endpoint gave {len(vectors)} vectors for {len(texts)} texts."
            )
        return [self._unit(vector) for vector in vectors]

    @override
    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, texts: list[str]) -> JsonObject:
        """The answer, the longest texts cut until the endpoint takes them: some refuse what is over the window."""
        asked = {"input": texts, "model": self.model, "encoding_format": "float"}
        body = json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            return await self._client.post("/embeddings", body)
        except ContextOverflow as error:
            most = int(SHRINK * max(map(len, texts)))
            if most < SHORTEST:
                raise EmbeddingError(error.message, hint=error.hint) from error
        except ModelError as error:
            raise EmbeddingError(error.message, hint=error.hint) from error
        return await self._ask([text[:most] for text in texts])

    async def _listed_window(self) -> int | None:
        try:
            cards = await self._client.models() or []
        except ModelError as error:
            raise EmbeddingError(error.message, hint=error.hint) from error
        found = (card.get("max_model_len") for card in cards if card.get("id") == self.model)
        return next((window for window in found if type(window) is int and window > 0), None)

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


def _vectors(answer: JsonObject) -> list[object]:
    """What stands for the vectors in an answer, in the order of the texts, not yet checked."""
    try:
        items = sorted(answer["data"], key=lambda item: item["index"])
        return [item["embedding"] for item in items]
    except (KeyError, TypeError) as error:
        raise EmbeddingError(
            "The embedding endpoint did not answer as an OpenAI-compatible endpoint does.",
            hint="Check that MEMSERVER_EMBEDDING_BASE_URL ends in /v1.",
        ) from error


def _is_vector(value: object) -> TypeGuard[list[float]]:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(part) in {int, float} for part in value)
    )
