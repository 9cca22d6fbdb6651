"""Agents, what their prompts hold, and the server itself."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memserver.client.models.base import Record
from memserver.client.models.messages import Message


class AgentOptions(Record):
    """An agent's own settings; what it leaves out is the server's setting.

    Attributes:
        protocol: whether its model acts by calls of tools, or is asked in plain chat.
        context_window: tokens of prompt and output.
        max_output_tokens: tokens kept free for one step's output.
        max_steps: model steps in one turn.
        must_reply: whether a message is answered before the turn ends.
        prompt_order: whether the working context comes before the messages or behind them.
        history: whether its prompts show what it said as calls, or as the text alone.
        auto_recall: whether the server searches its history for each message.
        auto_recall_floor: similarity from which on such a search shows a message.
        clock: what it takes for the time: the server's clock, or the times of its messages.
        timezone: of dates without a zone, an IANA name.
    """

    protocol: Literal["tools", "chat"] = "tools"
    context_window: int | None = None
    max_output_tokens: int | None = None
    max_steps: int | None = None
    must_reply: bool = True
    prompt_order: Literal["working_context_first", "working_context_last"] | None = None
    history: Literal["calls", "compact"] | None = None
    pressure_alert: bool | None = None
    auto_recall: bool | None = None
    auto_recall_floor: float | None = None
    clock: Literal["server", "messages"] = "server"
    timezone: str = "UTC"


class Agent(Record):
    """An agent; `model` and `system_prompt` are None where they are the server's."""

    id: UUID
    name: str
    model: str | None
    system_prompt: str | None
    options: AgentOptions
    metadata: dict[str, Any]
    language: str
    message_count: int
    created_at: datetime
    updated_at: datetime


class NotCarried(Record):
    """Something of a file that could not be carried as it is, and why."""

    kind: str
    name: str
    reason: str


class ImportedAgent(Record):
    """What an import made; `embedded` is whether passages were embedded anew."""

    agent: Agent
    messages: int
    passages: int
    embedded: bool
    not_carried: list[NotCarried]


class ContextPart(Record):
    """One part of a prompt, with its size in tokens."""

    name: str
    tokens: int
    text: str


class ContextModel(Record):
    """The model that sees a prompt, and how its endpoint is asked.

    Attributes:
        name: what the endpoint calls it.
        window_is_assumed: whether nobody has said how large its window is.
        mode: tools, json_schema or text; auto before the first turn.
        profile: what the endpoint takes otherwise than vLLM does.
        changes: what was found out by a refusal, or by an answer that was none, in words.
    """

    name: str
    window_is_assumed: bool
    mode: str
    profile: dict[str, str | bool | None]
    changes: list[str]


class ContextView(Record):
    """What an agent's prompt holds now; all sizes are tokens as the model counts them.

    Attributes:
        window: of prompt and output together.
        reserved: kept free for the output.
        used: of the prompt.
        token_scale: the model's tokens for each one of the server's own count.
        parts: the prompt, part by part.
        queue: the messages in it.
        summary_failure: why the newest summary is an extract and not the model's, if so.
        model: that sees it.
    """

    window: int
    reserved: int
    used: int
    token_scale: float
    parts: list[ContextPart]
    queue: list[Message]
    summary_failure: str | None
    model: ContextModel

    @property
    def fullness(self) -> float:
        """How much of what a prompt may hold is used: 0 is empty, 1 is full."""
        return self.used / max(1, self.window - self.reserved)


class Health(Record):
    """The server answers."""

    status: Literal["ok"]
    version: str


class Component(Record):
    """One thing that the server needs."""

    name: str
    ready: bool
    detail: str


class Readiness(Record):
    """Whether turns can be answered now, and what is missing if not."""

    ready: bool
    components: list[Component]
