"""The server that episodes are played on, in this process, over a Postgres of its own; and the policies that play."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.batching import BatchingEmbedder
from memserver.llm.tokens import Remembered
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.tokenizer_file import TokenizerFile
from memserver.wiring.database import database_urls
from memserver.wiring.providers import Models, make_embedder
from memserver.wiring.services import assemble
from sweet_rl.memory_episodes.player import Players, PolicyOf
from sweet_rl.memory_episodes.playing import Stage
from sweet_rl.memory_episodes.records import Task
from sweet_rl.memory_episodes.scripted import Scripted

SEPARATORS = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
"""As json.dumps writes them, and as the warm start has learnt them."""
AT_ENDPOINT = 256
"""Requests in flight: candidates of many episodes are drawn at the same time."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str  # of an OpenAI-compatible endpoint, …/v1
    model: str  # its name there
    temperature: float  # 0 is greedy


@asynccontextmanager
async def stage_of(
    tokenizer: Path, policy: Endpoint | None, *, embedder: Embedder | None = None
) -> AsyncIterator[Stage]:
    """A server with a policy on it."""
    with tempfile.TemporaryDirectory() as home:
        settings = _settings(Path(home), tokenizer, policy)
        found = BatchingEmbedder(RememberingEmbedder(embedder or make_embedder(settings)))
        try:
            async with _policy(settings, tokenizer, policy) as chosen:
                players = Players(chosen(_NOBODYS))
                with database_urls(settings) as urls:
                    async with assemble(urls.app, players, found, settings) as services:
                        yield Stage(services, players, chosen)
        finally:
            await found.aclose()


@asynccontextmanager
async def _policy(
    settings: Settings, tokenizer: Path, policy: Endpoint | None
) -> AsyncIterator[PolicyOf]:
    if policy is None:
        counter = Remembered(TokenizerFile(tokenizer))
        yield lambda task: Scripted(task, counter)
        return
    models = Models(settings)
    try:
        model = models.get(policy.model)
        yield lambda _task: model
    finally:
        await models.aclose()


def _settings(home: Path, tokenizer: Path, policy: Endpoint | None) -> Settings:
    """As the local engine serves its own model, with the history and the alerts of the warm start."""
    return Settings(
        home=home,
        prompts_dir=shipped_prompts() / "small_model",
        llm_base_url=policy.url if policy else None,
        llm_model=policy.model if policy else None,
        llm_mode="json_schema",
        llm_context_window=8192,
        llm_body={"temperature": policy.temperature if policy else 0},
        llm_schema={"x-guidance": SEPARATORS},
        llm_list_tools=False,
        llm_thought_last=True,
        llm_longest_text=200,
        llm_tokenizer=tokenizer,
        llm_max_in_flight=AT_ENDPOINT,
        history="compact",
        summary_method="extract",
        pressure_alert=True,
        index_after_seconds=0,
        jobs_at_once=0,
        database_pool_size=16,
    )


class RememberingEmbedder(Embedder):
    """Another embedder's vectors of the texts seen so far: every fork says what its original said."""

    def __init__(self, inner: Embedder, most: int = 20_000) -> None:
        self._inner, self._most = inner, most
        self._known: dict[str, Vector] = {}
        self.model, self.dimension, self.window = inner.model, inner.dimension, inner.window

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self._inner.count_tokens(texts)

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        unknown = [text for text in dict.fromkeys(texts) if text not in self._known]
        vectors = await self._inner.embed(unknown) if unknown else []
        if len(self._known) > self._most:
            self._known = {text: self._known[text] for text in texts if text in self._known}
        self._known |= dict(zip(unknown, vectors, strict=True))
        return [self._known[text] for text in texts]

    @override
    async def check(self) -> None:
        await self._inner.check()

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


_NOBODYS = Task(id="none", topic="", side="train", window=8192, lines=(), asked=())
