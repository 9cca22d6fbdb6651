"""Policies by script, which know the task: for the check that tasks are what they should be, and for tests."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from memserver.llm.base import ChatModel, Reply, TextSink, Written
from memserver.llm.tokens import TokenCounter
from memserver.messages import PromptMessage, ToolCall, ToolSpec, Usage
from sweet_rl.memory_episodes.records import Asked, Task
from sweet_rl.warm_start.corpus import Question
from sweet_rl.warm_start.reading import CANT_FIND, quote
from sweet_rl.warm_start.remembering import NOTHING_TO_SAVE, call, notes, say, shows

LONGEST_NOTE = 180
_AFTER_NOTES = "Recall storage:"


@dataclass
class Scripted(ChatModel):
    task: Task  # whose questions it knows
    counter: TokenCounter  # counts tokens as the student's tokenizer does
    # whether it notes, when memory gets short, the sentences that will be asked for
    saves: bool = True
    name: str = "scripted"
    message_overhead: int = 16

    @override
    async def context_window(self) -> int:
        return 8192

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self.counter.count(texts)

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        return ""

    @override
    async def check(self) -> None: ...

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
            return Reply(self._save(prompt), Usage())
        said = next(part.text for part in reversed(prompt) if part.role == "user")
        asked = [each for each in self.task.asked if said.endswith(f"] {each.text}")]
        return Reply(say(self._answer(asked[0], prompt) if asked else "I see."), Usage())

    @override
    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        return Written("Nothing much.", Usage())

    @override
    async def aclose(self) -> None: ...

    def _save(self, prompt: Sequence[PromptMessage]) -> ToolCall:
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


def _question(asked: Asked) -> Question:
    return Question(asked.text, asked.answer, asked.evidence, asked.kind)
