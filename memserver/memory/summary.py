"""The recursive summary: old summary + evicted messages -> new summary (MemGPT, section 2.2).

A model writes it, in as many pieces as its window asks for and two tries a piece. Where it fails or
says nothing, a plain extract takes its place, and the failure is kept beside the result. No text is
lost either way: what is evicted stays in recall storage.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal

from memserver.errors import ModelError
from memserver.llm.base import ChatModel
from memserver.memory.text import cut_middle, shorten, snippet, stamp
from memserver.messages import Message, PromptMessage
from memserver.prompts import Prompts

logger = logging.getLogger(__name__)

TRIES = 2
WORDS_PER_TOKEN = 0.6
"""So that a summary of as many words as we ask for has fewer tokens than we allow."""
PROMPT_SLACK = 64
"""Tokens for what the templates add around the counted texts."""
EXTRACT_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and how it came about; `failure` says why no model wrote it."""

    text: str
    tokens: int
    method: Literal["model", "extractive"]
    failure: str | None = None


class Summarizer:
    """Folds messages into a summary."""

    def __init__(self, model: ChatModel, prompts: Prompts, zone: tzinfo = UTC) -> None:
        self._model = model
        self._prompts = prompts
        self._zone = zone

    async def fold(self, old: str, evicted: Sequence[Message], limit: int) -> Summary:
        """Make the new summary.

        Args:
            old: the summary so far, or an empty string.
            evicted: what leaves the queue, oldest first.
            limit: tokens that the summary may have.
        """
        text, failure = old, None
        for lines in await self._pieces(evicted, limit):
            text, failed = await self._fold_piece(text, lines, limit)
            failure = failed or failure
        [tokens] = await self._model.count_tokens([text])
        if tokens > limit:
            text = await shorten(text, tokens, limit, self._model)
            [tokens] = await self._model.count_tokens([text])
        return Summary(text, tokens, "extractive" if failure else "model", failure)

    async def _pieces(self, evicted: Sequence[Message], limit: int) -> list[list[str]]:
        """The transcript in pieces that each fit the summariser's window beside the old summary."""
        window = await self._model.context_window()
        instructions = self._instructions(limit)
        [fixed] = await self._model.count_tokens([instructions])
        room = max(64, window - 2 * limit - fixed - PROMPT_SLACK)
        lines = [line for message in evicted if (line := transcript_line(message, self._zone))]
        pieces: list[list[str]] = [[]]
        used = 0
        for line, size in zip(lines, await self._model.count_tokens(lines), strict=True):
            fitted = await shorten(line, size, room, self._model)
            if pieces[-1] and used + size > room:
                pieces.append([])
                used = 0
            pieces[-1].append(fitted)
            used += size
        return [piece for piece in pieces if piece]

    async def _fold_piece(
        self, old: str, lines: Sequence[str], limit: int
    ) -> tuple[str, str | None]:
        """The new summary, and why no model wrote it, if none did."""
        prompt = [
            PromptMessage("system", self._instructions(limit)),
            PromptMessage(
                "user",
                self._prompts.render(
                    "summary_request.md", summary=old, transcript="\n".join(lines)
                ),
            ),
        ]
        failure = ""
        for _ in range(TRIES):
            try:
                written = await self._model.write(prompt, max_tokens=limit)
            except ModelError as error:
                failure = f"{error.code}: {error.message}"
                continue
            if written.text.strip():
                return written.text.strip(), None
            failure = "the summariser answered nothing"
        logger.warning("Summary by extract, since the model failed: %s", failure)
        return extract(old, lines, limit), failure

    def _instructions(self, limit: int) -> str:
        return self._prompts.render("summary.md", words=int(limit * WORDS_PER_TOKEN))


def transcript_line(message: Message, zone: tzinfo) -> str:
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


def extract(old: str, lines: Sequence[str], limit: int) -> str:
    """A summary without a model: the old one, then the beginning of each line, within `limit`.

    Characters stand in for tokens, since no text has more tokens than bytes; where both parts don't
    fit, each keeps its beginning and its end.
    """
    added = "\n".join(snippet(line, EXTRACT_CHARACTERS) for line in lines)
    characters = limit * 3
    if len(old) + len(added) > characters:
        half = characters // 2
        old = old if len(old) <= half else cut_middle(old, half, "…")
        added = added if len(added) <= half else cut_middle(added, half, "…")
    return f"{old}\n{added}".strip()
