"""The server that episodes are played on, in this process, over a Postgres of its own; and the policies that play.

Those by script know the task: for the check that tasks are what they should be, and for tests.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.batching import BatchingEmbedder
from memserver.llm.base import Reply, TextSink, Written
from memserver.llm.tokens import Remembered, TokenCounter
from memserver.messages import FunctionCall, PromptMessage, TokenUsage, ToolSpec
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.tokenizer_file import TokenizerFile
from memserver.wiring.database import database_urls
from memserver.wiring.providers import Models, make_embedder
from memserver.wiring.services import assemble
from sweet_rl.memory_episodes.playing import PolicyOf, Stage
from sweet_rl.memory_episodes.records import Asked, Task
from sweet_rl.offline_models import ModelsByName, OfflineModel
from sweet_rl.warm_start.corpus import CorpusQuestion
from sweet_rl.warm_start.reading import CANT_FIND, quote
from sweet_rl.warm_start.remembering import NOTHING_TO_SAVE, call, notes, say, shows

LONGEST_NOTE = 180
_AFTER_NOTES = "Recall storage:"
SEPARATORS = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
"""As json.dumps writes them, and as the warm start has learnt them."""
AT_ENDPOINT = 256
"""Requests in flight: candidates of many episodes are drawn at the same time."""
_NOBODYS = Task(id="none", topic="", side="train", window=8192, lines=(), asked=())


@dataclass
class Scripted(OfflineModel):
    task: Task  # whose questions it knows
    counter: TokenCounter  # counts tokens as the student's tokenizer does
    # whether it notes, when memory gets short, the sentences that will be asked for
    saves: bool = True
    name: str = "scripted"
    window: int = 8192

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        if any(tool.name == NOTHING_TO_SAVE for tool in tools):
            return Reply(self._save(prompt), TokenUsage())
        said = next(part.text for part in reversed(prompt) if part.role == "user")
        asked = [each for each in self.task.asked if said.endswith(f"] {each.text}")]
        return Reply(say(self._answer(asked[0], prompt) if asked else "I see."), TokenUsage())

    @override
    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        return Written("Nothing much.", TokenUsage())

    def _save(self, prompt: Sequence[PromptMessage]) -> FunctionCall:
        """Oldest first: notes take room, so something may leave the queue while they are taken."""
        kept = prompt[0].text.partition(_AFTER_NOTES)[
            0
        ]  # a summary comes after them, and forgets again
        for asked in sorted(self.task.asked, key=lambda one: one.line or 0) if self.saves else ():
            note = noted(asked)
            if asked.line is not None and note not in kept and _is_shown(asked, prompt[1:]):
                return call(
                    "working_context_append", section="human", content=note, request_heartbeat=True
                )
        return call(NOTHING_TO_SAVE)

    def _answer(self, asked: Asked, prompt: Sequence[PromptMessage]) -> str:
        known = asked.line is not None and (
            noted(asked) in notes(prompt) or _is_shown(asked, prompt[1:])
        )
        return f"{asked.answer}." if known else CANT_FIND


def noted(asked: Asked) -> str:
    return quote(_question(asked), LONGEST_NOTE)


def _is_shown(asked: Asked, prompt: Sequence[PromptMessage]) -> bool:
    return any(shows(part.text, _question(asked)) for part in prompt)


def _question(asked: Asked) -> CorpusQuestion:
    return CorpusQuestion(asked.text, asked.answer, asked.evidence, asked.kind)


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str  # of an OpenAI-compatible endpoint, …/v1
    model: str  # its name there
    temperature: float  # 0 is greedy


@asynccontextmanager
async def stage_of(
    tokenizer: Path, policy: Endpoint | None, *, embedder: Embedder | None = None
) -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory() as home:
        settings = _settings(Path(home), tokenizer, policy)
        found = BatchingEmbedder(RememberingEmbedder(embedder or make_embedder(settings)))
        try:
            async with _policy(settings, tokenizer, policy) as chosen:
                players = ModelsByName(chosen(_NOBODYS))
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
