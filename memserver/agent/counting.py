"""What entries of the history cost in the prompts of one turn: as we count tokens, and the model's for each of ours."""

from collections.abc import Sequence
from dataclasses import replace

from memserver.agent.context import SHORT_TEXT, PromptParts, count_entry, count_prompt, fields_text
from memserver.agent.rendering import EntryForm, prompt_messages
from memserver.llm.base import ChatModel
from memserver.memory import scale
from memserver.memory.queue import Budget
from memserver.memory.results import Reader
from memserver.messages import Message, ToolSpec, Usage


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

    async def entry(self, message: Message) -> Message:
        """The entry with its tokens, as its prompts show it; without provider fields that are never sent."""
        fields = message.fields if self._model.fields_of is not None else None
        written = self._written if message.call is not None and fields is None else 0
        shown = prompt_messages(message, form=self._form)
        tokens = await count_entry(shown, self._model, written=written, scale=self.factor)
        if fields is None:
            return replace(message, tokens=tokens, fields=None)
        if not fields.tokens:
            [count] = await self._model.count_tokens([fields_text(fields)])
            fields = replace(fields, tokens=count)
        return replace(message, tokens=tokens + fields.tokens, fields=fields)

    async def learn(
        self, prompt: PromptParts, queue: Sequence[Message], tools: Sequence[ToolSpec], usage: Usage
    ) -> None:
        """Compare a prompt as we count it with what the endpoint says of it and of the answer."""
        self._written = usage.completion_tokens
        counted = await count_prompt(prompt, queue, self._model, tools)
        exact = self._model.counts_exactly
        self.scale = scale.learn(self.scale, counted, usage.prompt_tokens, exact=exact)

    async def learn_overflow(
        self, prompt: PromptParts, queue: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> None:
        """The endpoint says that this prompt is too long: from now on more is counted."""
        counted = await count_prompt(prompt, queue, self._model, tools)
        self.scale = scale.after_overflow(prompt.budget.scale, counted, prompt.budget.capacity)

    def reader(self, message: Message, budget: Budget, *, can_read_on: bool) -> Reader:
        """The model, as the reader of the result of this entry's call."""

        async def room() -> int:
            call = await self.entry(message)
            return budget.largest_counted - call.tokens - SHORT_TEXT

        return Reader(budget.window, self._model.count_tokens, self.factor, room, can_read_on)
