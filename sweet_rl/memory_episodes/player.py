"""The policy of one episode, watched: what it saw and called is kept, and other calls can be drawn or forced."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override

from memserver.agent.dependencies import ModelSource
from memserver.agent.pressure import NOTHING_TO_SAVE
from memserver.errors import ProtocolViolation
from memserver.llm.base import ChatModel, Reply, TextSink, Written
from memserver.llm.call_ids import new_call_id
from memserver.llm.wire import call_as_json, json_messages
from memserver.messages import PromptMessage, ToolSpec
from sweet_rl.memory_episodes.records import Step, Task
from sweet_rl.trajectories import ChatMessage, Messages

PolicyOf = Callable[[Task], ChatModel]
"""The model that plays a task. A real one is the same for all; a scripted one knows the task."""


@dataclass(frozen=True, slots=True)
class State:
    prompt: Messages
    replies: tuple[Reply, ...]


@dataclass
class Player(ChatModel):
    policy: ChatModel  # that one
    message: int = 0  # place of what is being answered, among the task's lines and questions
    draw: int = 1  # replies at each call; the first is acted on
    forced: deque[Reply] = field(
        default_factory=deque
    )  # replies that are given before the policy is asked again
    steps: list[tuple[Messages, Step]] = field(
        default_factory=list
    )  # all calls, each with its prompt
    states: list[State] = field(
        default_factory=list
    )  # of the calls since `draw` or `forced` was set
    violations: int = 0  # replies that were no valid call

    def __post_init__(self) -> None:
        self.name, self.message_overhead = self.policy.name, self.policy.message_overhead

    @property
    @override
    def counts_exactly(self) -> bool:
        return self.policy.counts_exactly

    @override
    async def context_window(self) -> int:
        return await self.policy.context_window()

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self.policy.count_tokens(texts)

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        return self.policy.tools_text(tools)

    @override
    async def check(self) -> None:
        await self.policy.check()

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        shown = tuple(map(_chat_message, json_messages(prompt)))
        if self.forced:
            given = self.forced.popleft()
            replies = [replace(given, call=replace(given.call, id=new_call_id()))]
        else:
            asked: list[Coroutine[None, None, Reply | None]] = [
                self._ask(prompt, tools, max_tokens),
                *(self._ask_again(prompt, tools, max_tokens) for _ in range(1, self.draw)),
            ]
            replies = [reply for reply in await asyncio.gather(*asked) if reply is not None]
        acted = replies[0]
        step = Step(
            shown=len(shown),
            action=call_as_json(acted.call),
            message=self.message,
            alert=any(tool.name == NOTHING_TO_SAVE.spec.name for tool in tools),
            tokens=acted.usage.completion_tokens,
        )
        self.steps.append((shown, step))
        self.states.append(State(shown, tuple(replies)))
        return acted

    async def _ask(
        self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec], max_tokens: int
    ) -> Reply:
        try:
            return await self.policy.call_tool(prompt, tools, max_tokens=max_tokens)
        except ProtocolViolation:
            self.violations += 1
            raise

    async def _ask_again(
        self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec], max_tokens: int
    ) -> Reply | None:
        """Another reply to the same; None where it is no call."""
        try:
            return await self.policy.call_tool(prompt, tools, max_tokens=max_tokens)
        except ProtocolViolation:
            return None

    @override
    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        return await self.policy.write(prompt, max_tokens=max_tokens, on_text=on_text)

    @override
    async def aclose(self) -> None:
        """The policy is its maker's."""


class Players(ModelSource):
    def __init__(self, counting: ChatModel) -> None:
        self._counting = counting
        self._known: dict[str, Player] = {}

    def add(self, name: str, player: Player) -> None:
        self._known[name] = player

    def remove(self, name: str) -> None:
        del self._known[name]

    @override
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        return self._counting if name is None else self._known[name]


def _chat_message(message: dict[str, str]) -> ChatMessage:
    return {"role": message["role"], "content": message["content"]}  # type: ignore[typeddict-item]
