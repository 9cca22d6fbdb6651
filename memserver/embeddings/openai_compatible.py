"""An embedder behind any OpenAI-compatible /v1/embeddings.

A request is changed until the endpoint takes it: other fields, fewer texts, shorter ones.
"""

import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from typing_extensions import override

from memserver.embeddings.answers import read_vectors
from memserver.embeddings.base import MOST_DIMENSIONS, Embedder, Vector, embeddable, tokenizer_of
from memserver.embeddings.batch_size import BatchSize
from memserver.embeddings.profile import Additions, EmbeddingProfile
from memserver.embeddings.refusals import RefusedTexts, translate
from memserver.errors import EmbedderUnfit, EmbeddingRejected, ModelError, ModelTimeout
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.streams import json_bytes
from memserver.text import clean

logger = logging.getLogger(__name__)

_COMMON_WINDOW = 512
_FRAME = 2
"""Tokens that a model puts around a text, as a rule."""
_LIST_AGAIN_SECONDS = 60.0
_BLANK = "empty"
"""Embedded in place of a blank text, which many endpoints refuse."""
SHRINK = 0.75
SHORTEST = 16
"""Characters of a text that every window takes."""


def embedding_endpoint(
    base_url: str, api_key: str = "", *, timeout: float = 60, max_retries: int = 2
) -> Endpoint:
    """An endpoint in the form that errors and hints of embeddings have."""
    return Endpoint(
        base_url,
        api_key,
        timeout,
        max_retries,
        title="embedding endpoint",
        variables="MEMSERVER_EMBEDDING",
    )


class OpenAICompatibleEmbedder(Embedder):
    """Embeds over HTTP and scales what comes back to unit length.

    Attributes:
        dimension: as given, else 0 until the first answer; `connected` asks for it.
        window: as given, else 0 until `count_tokens` has asked what the endpoint lists.
    """

    def __init__(  # noqa: PLR0913 - all but two have defaults and are named
        self,
        endpoint: Endpoint,
        model: str,
        *,
        dimension: int = 0,
        window: int = 0,
        tokenizer: Path | None = None,
        batch_size: int = 32,
        additions: Additions | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            endpoint: see `embedding_endpoint`.
            model: what the endpoint calls the model.
            dimension: of the vectors, which the endpoint is asked for where the model has another; 0 takes
                what the first answer has.
            window: tokens of a text that the model reads; 0 takes the `max_model_len` that the endpoint
                lists, else 512.
            tokenizer: the model's tokenizer.json; without it a text's bytes bound its tokens.
            batch_size: texts in one request, at most.
            additions: what else requests and texts have.

        Raises:
            SetupError: the address is no URL.
        """
        self.model = model
        self.dimension = dimension
        self.window = window
        self._given_dimension = dimension
        self._tokenizer = tokenizer_of(tokenizer) if tokenizer else None
        self._batch = BatchSize(batch_size)
        self._additions = additions or Additions()
        self._profile = EmbeddingProfile()
        self._proven = False
        self._explained = 0
        self._list_again = 0.0
        self._client = EndpointClient(endpoint)

    @property
    @override
    def batch_size(self) -> int:
        return self._batch.now

    @property
    @override
    def queries_differ(self) -> bool:
        return self._profile.input_type or self._additions.queries_differ

    @override
    def describe(self) -> str:
        texts = f"up to {self._batch.now} texts a request" if self._profile.list_input else ""
        return ", ".join(filter(None, [super().describe(), self._profile.describe(), texts]))

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
        if not self.window or time.monotonic() > self._list_again > 0:
            self.window = await self._listed_window() or _COMMON_WINDOW
        texts = [self._additions.prefix + text for text in texts]
        if self._tokenizer is not None:
            return await self._tokenizer.count(texts)
        return [len(clean(text).encode()) + _FRAME for text in texts]

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._in_pieces(_readable(texts, self._additions.prefix), query=False)

    @override
    async def embed_query(self, text: str) -> Vector:
        texts = _readable([text], self._additions.query_prefix)
        [vector] = await self._in_pieces(texts, query=True)
        return vector

    @override
    async def aclose(self) -> None:
        await self._client.aclose()

    async def _in_pieces(self, texts: list[str], *, query: bool) -> list[Vector]:
        vectors: list[Vector] = []
        while (done := len(vectors)) < len(texts):
            vectors += await self._embed_by_halves(
                texts[done : done + self._batch.now], query=query
            )
        return vectors

    async def _embed_by_halves(self, texts: list[str], *, query: bool) -> list[Vector]:
        """Embed texts by requests that are halved until the endpoint takes them."""
        explained = self._explained
        try:
            return await self._embed_at_once(texts, query=query)
        except RefusedTexts:
            if len(texts) == 1:
                raise
        half = (len(texts) + 1) // 2
        vectors = await self._in_pieces(texts[:half], query=query)
        vectors += await self._in_pieces(texts[half:], query=query)
        if self._explained == explained and half < self._batch.now:
            self._batch.refused(half)  # none of the texts was the reason, so their number was
            logger.info("%s gets %d texts a request from now on.", self.model, half)
        return vectors

    async def _embed_at_once(self, texts: list[str], *, query: bool) -> list[Vector]:
        """Embed texts by one request; one alone is simplified and cut until the endpoint takes it."""
        try:
            return await self._embed_fitting(texts, query=query)
        except RefusedTexts as refusal:
            adjusted = self._profile.after(refusal.message)
            if adjusted != self._profile:
                self._adopt(adjusted, refusal.message)
            elif len(texts) > 1:
                raise
            elif refusal.too_long and (most := int(SHRINK * len(texts[0]))) >= SHORTEST:
                self._explained += 1
                texts = [texts[0][:most]]
            elif not await self._simplify(texts, refusal, query=query):
                raise
        return await self._embed_at_once(texts, query=query)

    async def _simplify(self, texts: list[str], refusal: RefusedTexts, *, query: bool) -> bool:
        """Find the form of a request that an endpoint takes which has refused its first one; whether there is one."""
        for profile in () if self._proven else self._profile.simpler():
            with suppress(RefusedTexts):
                await self._request(profile, texts, query=query)
                self._adopt(profile, refusal.message)
                return True
        return False

    async def _embed_fitting(self, texts: list[str], *, query: bool) -> list[Vector]:
        """Vectors of the dimension that is wanted, for which the endpoint is asked where it gives another."""
        vectors = await self._request(self._profile, texts, query=query)
        wanted, natural = self._given_dimension, len(vectors[0])
        if wanted and natural != wanted and not self._profile.dimensions:
            asking, why = replace(self._profile, dimensions=wanted), "ignores it"
            try:
                vectors = await self._request(asking, texts, query=query)
            except EmbeddingRejected as error:
                why = f"refuses it: {error.message}"
            if len(vectors[0]) != wanted:
                raise self._unfit(len(vectors[0]), f"; asked for by `dimensions`, it {why}")
            self._adopt(asking, f"it gives {natural} dimensions, and takes `dimensions`")
        return self._checked(vectors)

    async def _request(
        self, profile: EmbeddingProfile, texts: list[str], *, query: bool
    ) -> list[Vector]:
        """One request's answer, of unit length. Raises EmbeddingError of the kind that `translate` says."""
        fields = profile.body(self.model, texts, self._additions.of(query=query), query=query)
        try:
            answer = await self._client.post("/embeddings", json_bytes(fields))
        except ModelTimeout as error:
            if len(texts) > 1:  # it may have been too much: a retry asks for less
                self._batch.fall(len(texts) // 2)
            raise translate(error) from error
        except ModelError as error:
            raise translate(error) from error
        vectors = read_vectors(answer)
        if len(vectors) != len(texts):
            raise RefusedTexts(
                f"The embedding endpoint gave {len(vectors)} vectors for {len(texts)} texts."
            )
        self._proven = True
        scaled = [self._unit(vector) for vector in vectors]
        self._batch.taken(len(texts))
        return scaled

    def _adopt(self, profile: EmbeddingProfile, why: str) -> None:
        self._profile = profile
        self._explained += 1
        if not profile.list_input:
            self._batch.fix(1)
        logger.info("%s is asked in another form (%s): %s", self.model, profile.describe(), why)

    async def _listed_window(self) -> int | None:
        """The window in the endpoint's list; where there is none now, it is asked for again after a while."""
        try:
            cards = await self._client.models() or []
            self._list_again = 0
        except ModelError:
            cards = []
            self._list_again = time.monotonic() + _LIST_AGAIN_SECONDS
        found = (card.get("max_model_len") for card in cards if card.get("id") == self.model)
        return next((window for window in found if type(window) is int and window > 0), None)

    def _unit(self, vector: Vector) -> Vector:
        length = math.hypot(*vector)
        if not (math.isfinite(length) and length > 0):
            raise RefusedTexts(f"The model {self.model} gave a vector without a direction.")
        return [value / length for value in vector]

    def _checked(self, vectors: list[Vector]) -> list[Vector]:
        """The vectors, if they can be stored. Raises EmbedderUnfit."""
        for vector in vectors:
            if len(vector) != (self.dimension or len(vectors[0])) or len(vector) > MOST_DIMENSIONS:
                raise self._unfit(len(vector))
        self.dimension = len(vectors[0])
        return vectors

    def _unfit(self, given: int, why: str = "") -> EmbedderUnfit:
        setting = "MEMSERVER_EMBEDDING_DIMENSION"
        if self.dimension:
            message = f"The model {self.model} gave {given} dimensions instead of {self.dimension}"
            hint = f"Set {setting}={given}, or unset it. If another model answers under this name now, "
            hint += "restore it, or re-embed the collections."
        else:
            message = f"The model {self.model} gave {given} dimensions"
            hint = f"Set {setting}=1024, or another length up to {MOST_DIMENSIONS} that the model has: "
            hint += "it is sent as `dimensions`."
        if given > MOST_DIMENSIONS:
            why += f"; at most {MOST_DIMENSIONS} can be stored"
            if self.dimension:
                hint = f"Choose a model of at most {MOST_DIMENSIONS} dimensions, or an endpoint that takes `dimensions`."
        return EmbedderUnfit(f"{message}{why}.", hint=hint, of_text=False)


def _readable(texts: Sequence[str], prefix: str) -> list[str]:
    return [prefix + (text if text.strip() else _BLANK) for text in map(embeddable, texts)]
