"""Models that stand in for one behind an endpoint, and the server's source of them."""

from collections.abc import Sequence

from typing_extensions import override

from memserver.agent.dependencies import ModelSource
from memserver.llm.base import ChatModel
from memserver.llm.tokens import TokenCounter
from memserver.messages import ToolSpec


class OfflineModel(ChatModel):
    """Needs no endpoint; its tokens are counted as the student's tokenizer does."""

    counter: TokenCounter
    window: int
    message_overhead: int = 16

    @override
    async def context_window(self) -> int:
        return self.window

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self.counter.count(texts)

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        return ""

    @override
    async def check(self) -> None: ...

    @override
    async def aclose(self) -> None: ...


class ModelsByName(ModelSource):
    """A model for each agent; `counting` stands for the server's own model, which only counts."""

    def __init__(self, counting: ChatModel) -> None:
        self._counting = counting
        self._known: dict[str, ChatModel] = {}

    def add(self, name: str, model: ChatModel) -> None:
        self._known[name] = model

    def remove(self, name: str) -> None:
        del self._known[name]

    @override
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        return self._counting if name is None else self._known[name]
