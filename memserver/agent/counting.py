"""What entries of the history cost in the prompts of one turn: as we count tokens, and the model's for each of ours."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from memserver.agent.context import PromptParts, tools_text
from memserver.agent.options import EntryForm
from memserver.agent.rendering import prompt_messages, user_text
from memserver.llm.base import ChatModel
from memserver.memory import scale
from memserver.memory.queue import Budget, scale_up
from memserver.memory.results import ResultReader
from memserver.messages import Entry, PromptMessage, TokenUsage, ToolSpec
from memserver.storage.inbox import NewMessage

CALL_TOKENS = 24
"""What an imported answer is counted beyond its text, since it is shown as a call."""
SHORT_TEXT = 16
"""Bytes of a text that counts as so many tokens: an "OK" needs no counting, while a section is locked."""


class Counting:
    """Counts for one agent's model, and learns its scale from what the endpoint says.

    Attributes:
        scale: the model's tokens for each one that we count; None where that was not learnt yet.
    """

    def __init__(self, model: ChatModel, form: EntryForm, known_scale: float | None) -> None:
        self.scale = known_scale
        self._model = model
        self._form = form
        self._written = 0

    @property
    def factor(self) -> float:
        """By what our counts are multiplied."""
        return self.scale or 1.0

    async def entry(self, message: Entry) -> Entry:
        """The entry with its tokens, as its prompts show it; without provider fields that are never sent."""
        fields = message.fields if self._model.fields_of is not None else None
        written = self._written if message.call is not None and fields is None else 0
        shown = prompt_messages(message, form=self._form)
        tokens = await count_entry(shown, self._model, written=written, scale=self.factor)
        tokens += sum(picture.tokens for picture in message.pictures)
        if fields is None:
            return replace(message, tokens=tokens, fields=None)
        if not fields.tokens:
            text = json.dumps([dict(fields.message), dict(fields.call)], ensure_ascii=False)
            [count] = await self._model.count_tokens([text])
            fields = replace(fields, tokens=count)
        return replace(message, tokens=tokens + fields.tokens, fields=fields)

    async def learn(
        self,
        prompt: PromptParts,
        queue: Sequence[Entry],
        tools: Sequence[ToolSpec],
        usage: TokenUsage,
    ) -> None:
        """Compare a prompt as we count it with what the endpoint says of it and of the answer."""
        self._written = usage.completion_tokens
        if any(message.pictures for message in queue):
            return  # what pictures cost is estimated: the scale is that of texts
        counted = await self._count_prompt(prompt, queue, tools)
        exact = self._model.counts_exactly
        self.scale = scale.learn(self.scale, counted, usage.prompt_tokens, exact=exact)

    async def learn_overflow(
        self, prompt: PromptParts, queue: Sequence[Entry], tools: Sequence[ToolSpec]
    ) -> None:
        """The endpoint says that this prompt is too long: from now on more is counted."""
        counted = await self._count_prompt(prompt, queue, tools)
        self.scale = scale.after_overflow(prompt.budget.scale, counted, prompt.budget.capacity)

    def reader(self, message: Entry, budget: Budget, *, can_read_on: bool) -> ResultReader:
        """The model, as the reader of the result of this entry's call."""

        async def room() -> int:
            call = await self.entry(message)
            return budget.largest_counted - call.tokens - SHORT_TEXT

        return ResultReader(budget.window, self._model.count_tokens, self.factor, room, can_read_on)

    async def _count_prompt(
        self, prompt: PromptParts, queue: Sequence[Entry], tools: Sequence[ToolSpec]
    ) -> int:
        """Our own count of a prompt as it was sent; the tools may have been others than its parts', or sent otherwise."""
        counted = prompt.counted
        sent, described = tools_text(self._model, tools), prompt.parts[-1]
        if sent != described.text:
            [count] = await self._model.count_tokens([sent])
            counted += count - described.counted
        largest = prompt.budget.largest_counted
        for message in queue:
            counted += message.tokens if message.tokens < largest else largest
        return counted


async def count_entry(
    shown: Sequence[PromptMessage], model: ChatModel, *, written: int = 0, scale: float = 1.0
) -> int:
    """Tokens of an entry as it stands in a prompt, with what the template puts around it, as we count; nothing has none.

    `written`: tokens that the endpoint says the model wrote for this call, if it said so; they save a count, unless they are
    more than the call can have (then it was thinking). `scale`: the model's tokens for each one that we count.
    """
    texts = [_counted_text(part) for part in shown]
    around = model.message_overhead * len(shown)
    if shown and shown[0].call is not None and 0 < written <= len(texts[0].encode()):
        texts, around = texts[1:], around + scale_up(written, 1 / scale)
    text = "\n".join(texts)
    if (length := len(text.encode())) <= SHORT_TEXT:
        return length + around
    [count] = await model.count_tokens([text])
    return count + around


def _counted_text(part: PromptMessage) -> str:
    if part.role != "assistant" or part.call is None:
        return part.text
    return f"{part.call.name} {json.dumps(dict(part.call.arguments), ensure_ascii=False)}"


async def count_new(
    messages: Sequence[NewMessage], model: ChatModel, now: datetime, form: EntryForm = "calls"
) -> list[int]:
    """Tokens of messages from outside as a prompt will show them, as the agent's model counts."""
    shown = [
        user_text(message.text, message.created_at or now) + (message.chat_note or "")
        if message.role == "user"
        else message.text
        for message in messages
    ]
    counts = await model.count_tokens(shown)
    call = model.message_overhead + CALL_TOKENS if form == "calls" else 0
    return [
        count
        + model.message_overhead
        + sum(picture.tokens for picture in message.pictures)
        + (call if message.role == "assistant" else 0)
        for count, message in zip(counts, messages, strict=True)
    ]
