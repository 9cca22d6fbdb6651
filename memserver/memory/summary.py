"""The recursive summary: old summary + evicted messages -> new summary (MemGPT, section 2.2).

A model writes it, in as many pieces as its window asks for and two tries a piece. Where it fails or
says nothing, an extract takes its place, and the failure is kept beside the result. No text is
lost either way: what is evicted stays in recall storage.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal

from memserver.errors import ContextOverflow, ModelError
from memserver.llm.base import ChatModel
from memserver.memory.extract import extract
from memserver.memory.queue import scale_up
from memserver.memory.shortening import shorten
from memserver.messages import Entry, PromptMessage
from memserver.prompts import Prompts
from memserver.text import snippet, stamp

logger = logging.getLogger(__name__)

SummaryMethod = Literal["model", "extract"]

TRIES = 2
WORDS_PER_TOKEN = 0.6
"""So that a summary of as many words as we ask for has fewer tokens than we allow."""
PROMPT_SLACK = 64  # tokens for what the templates add around the counted texts
LEAST_SUMMARY_TOKENS = 32
SUMMARISER_SHARE = 4
"""Of the summariser's window, which may be another one than the agent's, a summary takes a quarter."""
EXTRACT_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and how it came about; `failure` says why no model wrote it."""

    text: str
    tokens: int
    method: Literal["model", "extractive"]
    failure: str | None = None


class Summarizer:
    def __init__(
        self,
        model: ChatModel,
        prompts: Prompts,
        zone: tzinfo = UTC,
        *,
        scale: float | None = None,
        method: SummaryMethod = "model",
    ) -> None:
        """With `method` "extract" the model counts only; `scale` is its tokens for each one that we count."""
        self._model = model
        self._prompts = prompts
        self._zone = zone
        self._scale = scale or 1.0
        self._method = method

    async def fold(self, old: str, evicted: Sequence[Entry], limit: int) -> Summary:
        """The summary, within `limit` tokens, of the old one and of what leaves the queue, oldest first."""
        lines = [line for message in evicted if (line := transcript_line(message, self._zone))]
        if self._method == "extract":
            text = await self._extract(old, lines, limit)
            return Summary(text, (await self._count([text]))[0], "extractive")
        try:
            window = await self._model.context_window()
        except ModelError as error:
            failure: str | None = _describe(error)
            text = await self._extract(old, lines, limit)
        else:
            limit = max(LEAST_SUMMARY_TOKENS, min(limit, window // SUMMARISER_SHARE))
            text, failure = await self._within(old, limit), None
            for piece in await self._pieces(lines, limit, window):
                text, failed = await self._fold_piece(text, piece, limit)
                failure = failed or failure
        [tokens] = await self._count([text])
        return Summary(text, tokens, "extractive" if failure else "model", failure)

    async def _pieces(self, lines: Sequence[str], limit: int, window: int) -> list[list[str]]:
        """The transcript in pieces that each fit the summariser's window beside the old summary."""
        fixed_text = "".join(message.text for message in self._prompt("", [], limit))
        [fixed] = await self._count([fixed_text])
        room = max(64, window - 2 * limit - fixed - PROMPT_SLACK)
        pieces: list[list[str]] = [[]]
        used = 0
        sizes = await self._count([f"{line}\n" for line in lines])
        for line, size in zip(lines, sizes, strict=True):
            if pieces[-1] and used + size > room:
                pieces.append([])
                used = 0
            pieces[-1].append(await self._within(line, room) if size > room else line)
            used += size
        return [piece for piece in pieces if piece]

    async def _fold_piece(
        self, old: str, lines: Sequence[str], limit: int
    ) -> tuple[str, str | None]:
        """The new summary within its limit, and why no model wrote it, if none did."""
        try:
            text, failure = await self._written(old, lines, limit)
        except ContextOverflow:  # more tokens than we counted
            half = len(lines) // 2
            text, failure = await self._fold_piece(old, lines[:half], limit)
            text, failed = await self._fold_piece(text, lines[half:], limit)
            return text, failed or failure
        return await self._within(text, limit), failure

    async def _written(self, old: str, lines: Sequence[str], limit: int) -> tuple[str, str | None]:
        prompt = self._prompt(old, lines, limit)
        failure = ""
        for _ in range(TRIES):
            try:
                written = await self._model.write(prompt, max_tokens=limit)
            except ModelError as error:
                if isinstance(error, ContextOverflow) and len(lines) > 1:
                    raise
                failure = _describe(error)
                continue
            if written.text.strip():
                return written.text.strip(), None
            failure = "the summariser answered nothing"
        logger.warning("Summary by extract, since the model failed: %s", failure)
        return await self._extract(old, lines, limit), failure

    def _prompt(self, old: str, lines: Sequence[str], limit: int) -> list[PromptMessage]:
        transcript = "\n".join(lines)
        request = self._prompts.render("summary_request.md", summary=old, transcript=transcript)
        words = int(limit * WORDS_PER_TOKEN)
        return [
            PromptMessage("system", self._prompts.render("summary.md", words=words)),
            PromptMessage("user", request),
        ]

    async def _count(self, texts: Sequence[str]) -> list[int]:
        counts = await self._model.count_tokens(texts)
        return [scale_up(count, self._scale) for count in counts]

    async def _extract(self, old: str, lines: Sequence[str], limit: int) -> str:
        return await self._within(await extract(old, lines, limit, self._count), limit)

    async def _within(self, text: str, limit: int) -> str:
        """The text, shortened where it has more than `limit` of the summariser's tokens."""
        [counted] = await self._model.count_tokens([text])
        return await shorten(text, counted, int(limit / self._scale), self._model)


def _describe(error: ModelError) -> str:
    return f"{error.code}: {error.message}"


def transcript_line(message: Entry, zone: tzinfo) -> str:
    """A message as the summariser reads it; empty for what holds nothing to remember."""
    if message.role == "system":
        return ""
    day = stamp(message.created_at, zone)[:10]
    if message.text:
        return f"[{day}] {message.role}: {message.text}"
    if message.call is None or message.call.call.name.startswith("recall_"):
        return ""
    values = [str(value) for value in message.call.call.arguments.values()]
    return f"[{day}] assistant noted: {snippet(' | '.join(values), EXTRACT_CHARACTERS)}"
