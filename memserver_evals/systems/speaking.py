"""Asking the same model without memserver: one prompt in, one text out, everything kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from memserver.errors import ContextOverflow
from memserver.llm.base import ChatModel
from memserver.llm.wire import call_as_json, json_messages
from memserver.messages import JsonObject, PromptMessage, TokenUsage, ToolSpec
from memserver_evals.task import Exchange

SLACK = 16
"""Tokens kept free for what a template adds that nobody counts."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A model that is to say something."""

    model: ChatModel  # which one
    max_tokens: int = 512  # of its answer
    # send_message, for a model that was trained to speak by that call alone; None has it write
    # plain text
    tool: ToolSpec | None = None

    async def say(self, prompt: Sequence[PromptMessage]) -> tuple[str, Exchange]:
        if self.tool is None:
            written = await self.model.write(prompt, max_tokens=self.max_tokens)
            answer = {"role": "assistant", "content": written.text}
            return written.text, exchange(prompt, answer, written.usage)
        reply = await self.model.call_tool(prompt, [self.tool], max_tokens=self.max_tokens)
        answer = {"role": "assistant", "content": call_as_json(reply.call)}
        return str(reply.call.arguments.get("message", "")), exchange(prompt, answer, reply.usage)

    async def room(self) -> int:
        """Tokens that the messages of a prompt may have in all."""
        window = await self.model.context_window()
        tool = self.model.tools_text([self.tool]) if self.tool else ""
        [of_tool] = await self.count([tool])
        room = window - min(self.max_tokens, window // 2) - of_tool - SLACK
        if room < 1:
            raise ContextOverflow(f"A window of {window} tokens leaves no room for a prompt.")
        return room

    async def count(self, texts: Sequence[str]) -> list[int]:
        return await self.model.count_tokens(texts)

    async def count_message(self, text: str) -> int:
        """Tokens of a message, with what the template puts around it."""
        [count] = await self.count([text])
        return count + self.model.message_overhead


def exchange(
    prompt: Sequence[PromptMessage], answer: JsonObject, usage: TokenUsage, purpose: str = "answer"
) -> Exchange:
    return Exchange(
        tuple(json_messages(prompt)), answer, usage.prompt_tokens, usage.completion_tokens, purpose
    )
