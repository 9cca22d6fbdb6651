"""Agents, their timers, and what an import made."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from memserver.wire.base import Record, stored_as

AgentClock = Literal["server", "messages"]
"""What an agent takes for the time: the server's clock, or the times of its own messages."""
ReplyMode = Literal["tools", "chat"]
"""How the model is used: it acts by calls of tools, or it writes what the person reads."""
PromptOrder = Literal["working_context_first", "working_context_last"]
"""Where the working context stands: before the queue, as in the MemGPT paper, or after it."""
HistoryForm = Literal["calls", "compact"]
"""How the agent's own messages stand in a prompt: as the calls that they were, or as their texts."""


class AgentOptions(Record):
    """What an agent may set for itself; what it leaves out is the server's setting."""

    # The second name is the one in the database, where servers from before the first read it, too.
    reply_mode: ReplyMode = Field(
        default="tools", validation_alias=stored_as("reply_mode", "protocol")
    )
    """chat: the model is asked in plain chat, without tools, times and memory statistics, and what it writes
    is the message to the person; for models that were trained on chats and call no tools."""
    context_window: int | None = Field(default=None, examples=[8192])
    """Tokens of prompt and output; never more than the model has."""
    max_output_tokens: int | None = Field(default=None, examples=[1024])
    """Tokens kept free for one step's output."""
    max_steps: int | None = None
    """Model steps in one turn."""
    must_reply: bool = True
    """A message is answered with send_message before the turn ends. Off: as in the MemGPT paper, a
    step that asks for no heartbeat ends the turn, answered or not."""
    prompt_order: PromptOrder | None = None
    """Whether the working context comes before the messages or after them; in plain chat it comes before
    unless the agent itself says otherwise."""
    history: HistoryForm | None = None
    """compact: what the agent said stands in its prompts as the text alone, which takes half as much room;
    calls: as the call of send_message and its result."""
    auto_recall: bool | None = None
    """Before each message is answered the server searches the history for it, in the agent's name, where
    something of it is out of sight."""
    auto_recall_floor: float | None = Field(default=None, examples=[0.3])
    """Cosine similarity of a message from which on such a search is worth showing; shared words make it so, too."""
    pressure_alert: bool | None = None
    """Whether it gets an alert when memory is short, and steps to save what it will need."""
    daily_tokens: int | None = Field(default=None, examples=[100000])
    """Tokens of prompts and outputs that its turns may use on a day, in UTC; the next turn fails then."""
    trace: bool | None = None
    """Whether each step's prompt and the model's reply are stored as they are, to be looked at for a while."""
    upload_events: bool = False
    """Whether an event says so, in a turn of its own, when a document is stored in a collection that it searches."""
    retention_days: int | None = Field(default=None, examples=[365])
    """Messages and passages older than this are deleted; the tenant's rule counts, too, and the shorter one wins."""
    clock: AgentClock = "server"
    """messages: a message may say when it is said, by `created_at`, and that is the time while it is
    answered, for histories that are replayed."""
    timezone: str = "UTC"
    """Of dates without a zone, an IANA name."""


class Agent(Record):
    """An agent; `model` and `system_prompt` are null where they are the server's."""

    id: UUID
    name: str = Field(examples=["sam"])
    model: str | None = Field(examples=[None])
    system_prompt: str | None = Field(examples=[None])
    options: AgentOptions
    metadata: dict[str, Any]
    language: str = Field(description="Of its own collection.", examples=["auto"])
    message_count: int = Field(description="In recall storage.", examples=[0])
    created_at: datetime
    updated_at: datetime


class NotCarried(Record):
    """Something of a file that could not be carried as it is."""

    kind: str = Field(description="Such as tool, model, collection.", examples=["tool"])
    name: str = Field(examples=["web_search"])
    reason: str = Field(examples=["There is no tool of this name here."])


class ImportedAgent(Record):
    """What an import made."""

    agent: Agent
    messages: int = Field(
        examples=[412], validation_alias=stored_as("messages", "counts", "messages")
    )
    passages: int = Field(
        examples=[37], validation_alias=stored_as("passages", "counts", "passages")
    )
    embedded: bool = Field(description="Whether passages were embedded again.")
    not_carried: list[NotCarried] = Field(validation_alias=stored_as("not_carried", "notes"))


class Timer(Record):
    """A timer that has not gone off yet."""

    id: UUID
    at: datetime = Field(validation_alias=stored_as("at", "due"))
    text: str = Field(examples=["Ask how it went."])
    created_at: datetime
