"""Main context: what the model sees, put together from an agent's memories.

The order serves a prefix cache: instructions, then working context with memory statistics, then the
summary, then the queue (MemGPT, figure 3). In the other order the working context is the last message,
so that an edit of it leaves all before it in the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from uuid import UUID
from zoneinfo import ZoneInfo

from memserver.agent.brief_tools import is_brief, shorter
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.options import EntryForm, Limits
from memserver.agent.pictures import without_pictures
from memserver.agent.rendering import RENDERERS, prompt_messages
from memserver.agent.reply_modes import prompt_file
from memserver.agent.turn_tools import TurnTools
from memserver.llm.base import ChatModel
from memserver.memory.queue import Budget, scale_up
from memserver.memory.results import READ_TOOL, message_label
from memserver.memory.shortening import shorten
from memserver.messages import Entry, PromptMessage, ToolSpec
from memserver.prompts import Prompts
from memserver.storage.snapshots import AgentSnapshot
from memserver.text import stamp
from memserver.wire.agents import AgentOptions, PromptOrder

_shortened: dict[tuple[UUID, int, int], str] = {}
"""By agent, hash of the text and how to read it, and limit: the same entry has other texts in another mode or time zone."""
_MOST_SHORTENED = 256
TIGHT = 256
"""Tokens of the queue's room. Where it has less, and before the output gives way, tools are described in fewer words."""


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent as its prompts show it, the queue apart: its memories, the tools that are described, and how all looks."""

    snapshot: AgentSnapshot
    options: AgentOptions
    tools: tuple[ToolSpec, ...]
    form: EntryForm
    zone: tzinfo

    @classmethod
    def of(cls, snapshot: AgentSnapshot, tools: TurnTools, limits: Limits) -> "AgentView":
        """The view that an agent's own options, before the server's limits, give."""
        options = AgentOptions.model_validate(snapshot.agent.options)
        zone = ZoneInfo(options.timezone)
        view = cls(snapshot, options, (), limits.form(options), zone)
        return view.renewed(snapshot, tools)

    def renewed(self, snapshot: AgentSnapshot, tools: TurnTools) -> "AgentView":
        """The same agent by what was read of it later; options hold for the whole turn."""
        described = () if self.options.reply_mode == "chat" else tools.describe(snapshot.sections)
        return replace(self, snapshot=snapshot, tools=described)

    def edited_at(self, at: datetime) -> "AgentView":
        """The same agent with another time at which its memory was edited: in its own time it sees no date of ours."""
        state = replace(self.snapshot.state, stats_edited_at=at)
        return replace(self, snapshot=replace(self.snapshot, state=state))


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
    of all parts together as we count them, `tools` what the last part describes.
    """

    tools: tuple[ToolSpec, ...]
    parts: tuple[Part, ...]
    counted: int
    budget: Budget
    order: PromptOrder

    def tokens(self, queue: Sequence[Entry]) -> dict[str, int]:
        """The tokens of each part, and of the messages with what surrounds all of them."""
        counted = {part.name: part.tokens for part in self.parts}
        return {**counted, "queue": self.budget.used(queue) - sum(counted.values())}

    def messages(self, queue: Sequence[PromptMessage]) -> list[PromptMessage]:
        after = {"working_context"} if self.order == "working_context_last" else set()
        texts = [part for part in self.parts[:-1] if part.text]
        head = "\n\n".join(part.text for part in texts if part.name not in after)
        tail = [PromptMessage("system", part.text) for part in texts if part.name in after]
        return [PromptMessage("system", head), *queue, *tail]


async def build_prompt(
    view: AgentView, model: ChatModel, deps: TurnDependencies, scale: float | None
) -> PromptParts:
    """Render and count everything but the queue; tools that leave it no room are described briefly.

    `scale`: the model's tokens for each one that we count; None where that was not learnt yet.
    """
    texts = _texts(view, model, deps.prompts)
    counts = await model.count_tokens(list(texts.values()))
    layout = deps.limits.layout(view.options, await model.context_window())
    factor = scale or 1.0
    parts = tuple(
        Part(name, text, count, scale_up(count, factor))
        for (name, text), count in zip(texts.items(), counts, strict=True)
    )
    around = model.message_overhead * (1 if layout.order == "working_context_first" else 2)
    fixed = sum(part.tokens for part in parts) + scale_up(around, factor)
    budget = Budget(layout.window, layout.reserved, fixed, factor, layout.further)
    tight = budget.room < TIGHT or (budget.reserved < layout.reserved and not is_brief(view.tools))
    if tight and counts[-1] and (fewer := shorter(view.tools)):
        return await build_prompt(replace(view, tools=fewer), model, deps, scale)
    return PromptParts(view.tools, parts, sum(counts) + around, budget, layout.order)


def _texts(view: AgentView, model: ChatModel, prompts: Prompts) -> dict[str, str]:
    snapshot, mode = view.snapshot, view.options.reply_mode
    state = snapshot.state
    instructions = snapshot.agent.system_prompt or prompts.render(
        prompt_file("system.md", mode), brief=is_brief(view.tools)
    )
    working_context = prompts.render(
        prompt_file("working_context.md", mode),
        sections=snapshot.sections,
        messages=state.stats_messages,
        passages=state.stats_passages,
        edited_at=stamp(state.stats_edited_at, view.zone),
    )
    summary = snapshot.summary and prompts.render(
        prompt_file("summary_in_context.md", mode), summary=snapshot.summary
    )
    return {
        "instructions": instructions,
        "working_context": working_context,
        "summary": summary,
        "tools": tools_text(model, view.tools),
    }


def tools_text(model: ChatModel, tools: Sequence[ToolSpec]) -> str:
    return model.tools_text(tools) if tools else ""


async def render_queue(
    view: AgentView, queue: Sequence[Entry], largest: int, model: ChatModel
) -> list[PromptMessage]:
    """The queue as prompt messages; one that we count more than `largest` tokens is shown shortened."""
    rendered: list[PromptMessage] = []
    zone, render = view.zone, RENDERERS[view.form]
    for message in queue:
        if message.tokens <= largest and (
            message.fields is None or message.fields.tokens <= largest // 2
        ):
            rendered += render(message, zone)
        else:
            rendered += await _render_long(view, message, largest, model)
    return rendered


async def _render_long(
    view: AgentView, entry: Entry, largest: int, model: ChatModel
) -> list[PromptMessage]:
    if entry.pictures:
        entry = without_pictures(entry)
    fields = 0 if entry.fields is None else entry.fields.tokens
    if fields > largest // 2:
        entry, fields = without_fields(entry), 0
    parts = prompt_messages(entry, view.zone, view.form)
    if entry.tokens <= largest:
        return parts
    can_read = any(tool.name == READ_TOOL for tool in view.tools)
    more = f"; {READ_TOOL} {message_label(entry.position)}" if can_read else ""
    limit = max(1, (largest - fields) // max(1, len(parts)) - model.message_overhead)
    agent_id = view.snapshot.agent.id
    return [
        replace(part, text=await _shorten(agent_id, part.text, limit, model, more))
        if part.text
        else part
        for part in parts
    ]


def without_fields(message: Entry) -> Entry:
    if message.fields is None:
        return message
    tokens = max(0, message.tokens - message.fields.tokens)
    return replace(message, fields=None, tokens=tokens)


def as_sent(queue: Sequence[Entry], model: ChatModel) -> list[Entry]:
    """The queue as this model's prompts have it: only its own provider fields, as long as it takes any."""
    owner = model.fields_of
    return [
        message
        if message.fields is None or owner == "" or message.fields.model == owner
        else without_fields(message)
        for message in queue
    ]


async def _shorten(agent_id: UUID, text: str, limit: int, model: ChatModel, more: str) -> str:
    """A text in so many tokens at most, with how there is more to read."""
    key = (agent_id, hash(text + more), limit)
    if key not in _shortened:
        if len(_shortened) >= _MOST_SHORTENED:
            _shortened.clear()
        [tokens] = await model.count_tokens([text])
        _shortened[key] = await shorten(text, tokens, limit, model, more)
    return _shortened[key]
