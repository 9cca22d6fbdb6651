"""Main context: what the model sees, put together from an agent's memories.

The order serves a prefix cache: instructions, then working context with memory statistics, then the
summary, then the queue (MemGPT, figure 3). In the other order the working context is the last message,
so that an edit of it leaves all before it in the cache.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from uuid import UUID

from memserver.agent.brief_tools import is_brief, shorter
from memserver.agent.options import AgentProtocol, PromptOrder
from memserver.agent.rendering import EntryForm, prompt_messages
from memserver.agent.reply_modes import prompt_file
from memserver.llm.base import ChatModel
from memserver.memory.queue import Budget, scale_up
from memserver.memory.results import READ_TOOL, message_label
from memserver.memory.shortening import shorten
from memserver.messages import Message, PromptMessage, ProviderFields, Section, ToolSpec
from memserver.prompts import Prompts
from memserver.storage.agents import Agent
from memserver.storage.leases import State
from memserver.text import stamp

_shortened: dict[tuple[UUID, int, int], str] = {}
"""By agent, hash of the text and how to read it, and limit: the same entry has other texts in another protocol or time zone."""
_MOST_SHORTENED = 256
TIGHT = 256
"""Tokens of the queue's room. Where it has less, and before the output gives way, tools are described in fewer words."""
SHORT_TEXT = 16
"""Bytes of a text that counts as so many tokens: an "OK" needs no asking, while a section is locked."""


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """An agent's memories at one moment, apart from the queue."""

    agent: Agent
    state: State
    sections: tuple[Section, ...]
    summary: str
    tools: tuple[ToolSpec, ...]
    zone: tzinfo = UTC
    protocol: AgentProtocol = "tools"
    form: EntryForm = "calls"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the prompt before the queue: its tokens as we count them, and the model's."""

    name: str
    text: str
    counted: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The prompt without the queue: its parts, and what room they leave.

    The last part, the tools, reaches the model beside the messages, not in them. `counted` is the tokens
    of all parts together as we count them, `tools` what the last part tells of.
    """

    tools: tuple[ToolSpec, ...]
    parts: tuple[Part, ...]
    counted: int
    budget: Budget
    order: PromptOrder

    def messages(self, queue: Sequence[PromptMessage]) -> list[PromptMessage]:
        """The whole prompt with this queue."""
        behind = {"working_context"} if self.order == "working_context_last" else set()
        texts = [part for part in self.parts[:-1] if part.text]
        head = "\n\n".join(part.text for part in texts if part.name not in behind)
        tail = [PromptMessage("system", part.text) for part in texts if part.name in behind]
        return [PromptMessage("system", head), *queue, *tail]


@dataclass(frozen=True, slots=True)
class Layout:
    """How much an agent's prompt may hold, and in which order.

    Attributes:
        window: tokens of prompt and output in all.
        reserved: those of them that are wanted for the output.
        order: where the working context stands.
    """

    window: int
    reserved: int
    order: PromptOrder


async def build_prompt(
    snapshot: AgentSnapshot, model: ChatModel, prompts: Prompts, layout: Layout, scale: float | None
) -> PromptParts:
    """Render and count everything but the queue; tools that leave it no room are told briefly.

    Args:
        snapshot: what there is to show.
        model: counts.
        prompts: render.
        layout: how much the prompt may hold.
        scale: the model's tokens for each one that we count; None where that was not learnt yet.
    """
    protocol = snapshot.protocol
    texts = {
        "instructions": snapshot.agent.system_prompt
        or prompts.render(prompt_file("system.md", protocol), brief=is_brief(snapshot.tools)),
        "working_context": prompts.render(
            prompt_file("working_context.md", protocol),
            sections=snapshot.sections,
            messages=snapshot.state.stats_messages,
            passages=snapshot.state.stats_passages,
            edited_at=stamp(snapshot.state.stats_edited_at, snapshot.zone),
        ),
        "summary": prompts.render(
            prompt_file("summary_in_context.md", protocol), summary=snapshot.summary
        )
        if snapshot.summary
        else "",
        "tools": _tools_text(model, snapshot.tools),
    }
    counts = await model.count_tokens(list(texts.values()))
    factor = scale or 1.0
    parts = tuple(
        Part(name, text, count, scale_up(count, factor))
        for (name, text), count in zip(texts.items(), counts, strict=True)
    )
    around = model.message_overhead * (1 if layout.order == "working_context_first" else 2)
    fixed = sum(part.tokens for part in parts) + scale_up(around, factor)
    budget = Budget(layout.window, layout.reserved, fixed, factor)
    tight = budget.room < TIGHT or (
        budget.reserved < layout.reserved and not is_brief(snapshot.tools)
    )
    if tight and counts[-1] and (fewer := shorter(snapshot.tools)):
        return await build_prompt(replace(snapshot, tools=fewer), model, prompts, layout, scale)
    return PromptParts(snapshot.tools, parts, sum(counts) + around, budget, layout.order)


async def count_prompt(
    prompt: PromptParts, queue: Sequence[Message], model: ChatModel, tools: Sequence[ToolSpec]
) -> int:
    """Our own count of a prompt as it was sent, to compare with what the endpoint says of it.

    The tools are counted anew where others were sent than the frame has, or in another way.
    """
    counted = prompt.counted
    told = _tools_text(model, tools)
    if told != prompt.parts[-1].text:
        [count] = await model.count_tokens([told])
        counted += count - prompt.parts[-1].counted
    largest = prompt.budget.largest_counted
    return counted + sum(min(message.tokens, largest) for message in queue)


async def render_queue(
    snapshot: AgentSnapshot, queue: Sequence[Message], largest: int, model: ChatModel
) -> list[PromptMessage]:
    """The queue as prompt messages; one that we count more than `largest` tokens is shown shortened."""
    rendered: list[PromptMessage] = []
    can_read = any(tool.name == READ_TOOL for tool in snapshot.tools)
    for each in queue:
        message = without_fields(each) if _field_tokens(each) > largest // 2 else each
        more = f"; {READ_TOOL} {message_label(message.position)}" if can_read else ""
        parts = prompt_messages(message, snapshot.zone, snapshot.form)
        for part in parts:
            if message.tokens > largest and part.text:
                room = (largest - _field_tokens(message)) // len(parts)
                limit = max(1, room - model.message_overhead)
                text = await _shortened_text(snapshot.agent.id, part.text, limit, model, more)
                rendered.append(replace(part, text=text))
            else:
                rendered.append(part)
    return rendered


def _field_tokens(message: Message) -> int:
    return 0 if message.fields is None else message.fields.tokens


def without_fields(message: Message) -> Message:
    """The entry without its provider fields and their tokens."""
    if message.fields is None:
        return message
    tokens = max(0, message.tokens - message.fields.tokens)
    return replace(message, fields=None, tokens=tokens)


def fields_text(fields: ProviderFields) -> str:
    """Provider fields as text, for counting."""
    return json.dumps([dict(fields.message), dict(fields.call)], ensure_ascii=False)


def as_sent(queue: Sequence[Message], model: ChatModel) -> list[Message]:
    """The queue as this model's prompts have it: only its own provider fields, as long as it takes any."""
    owner = model.fields_of
    return [
        message
        if message.fields is None or owner == "" or message.fields.model == owner
        else without_fields(message)
        for message in queue
    ]


async def count_entry(
    shown: Sequence[PromptMessage], model: ChatModel, *, written: int = 0, scale: float = 1.0
) -> int:
    """Tokens of an entry as it stands in a prompt, with what the template puts around it, as we count.

    Args:
        shown: the entry, a call's result included; nothing has no tokens.
        model: counts.
        written: tokens that the endpoint says the model wrote for this call, if it said so; they save
            asking for a count, unless they are more than the call can have (then it was thinking).
        scale: the model's tokens for each one that we count.
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


def _tools_text(model: ChatModel, tools: Sequence[ToolSpec]) -> str:
    return model.tools_text(tools) if tools else ""


def _counted_text(part: PromptMessage) -> str:
    if part.role != "assistant" or part.call is None:
        return part.text
    return f"{part.call.name} {json.dumps(dict(part.call.arguments), ensure_ascii=False)}"


async def _shortened_text(
    agent_id: UUID, text: str, limit: int, model: ChatModel, more: str
) -> str:
    """A text in so many tokens at most, with how there is more to read."""
    key = (agent_id, hash(text + more), limit)
    if key not in _shortened:
        if len(_shortened) >= _MOST_SHORTENED:
            _shortened.clear()
        [tokens] = await model.count_tokens([text])
        _shortened[key] = await shorten(text, tokens, limit, model, more)
    return _shortened[key]
