"""An agent's own settings, with the server's as defaults."""

from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator

AgentClock = Literal["server", "messages"]
"""What an agent takes for the time: the server's clock, or the times of its own messages."""
AgentProtocol = Literal["tools", "chat"]
"""How the model is spoken with: it acts by calls of tools, or it writes what the person reads."""
PromptOrder = Literal["working_context_first", "working_context_last"]
"""Where the working context stands: before the queue, as in the MemGPT paper, or behind it."""
HistoryForm = Literal["calls", "compact"]
"""How the agent's own messages stand in a prompt: as the calls that they were, or as their texts."""

MOST_TOKENS = 100_000_000
"""More than any model has, and a number that arithmetic stays exact with."""


class AgentOptions(BaseModel):
    """What an agent may set for itself; what it leaves out is the server's setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: AgentProtocol = "tools"
    """chat: the model is asked in plain chat, without tools, times and memory statistics, and what it writes
    is the message to the person; for models that were trained on chats and call no tools."""
    context_window: int | None = Field(default=None, ge=512, le=MOST_TOKENS, examples=[8192])
    """Tokens of prompt and output; never more than the model has."""
    max_output_tokens: int | None = Field(default=None, ge=16, le=MOST_TOKENS, examples=[1024])
    """Tokens kept free for one step's output."""
    max_steps: int | None = Field(default=None, ge=1, le=100)
    """Model steps in one turn."""
    must_reply: bool = True
    """A message is answered with send_message before the turn ends. Off: as in the MemGPT paper, a
    step that asks for no heartbeat ends the turn, answered or not."""
    prompt_order: PromptOrder | None = None
    """Whether the working context comes before the messages or behind them; in plain chat it comes before
    unless the agent itself says otherwise."""
    history: HistoryForm | None = None
    """compact: what the agent said stands in its prompts as the text alone, which takes half as much room;
    calls: as the call of send_message and its result."""
    auto_recall: bool | None = None
    """Before each message is answered the server searches the history for it, in the agent's name, where
    something of it is out of sight."""
    auto_recall_floor: float | None = Field(default=None, ge=0, le=1, examples=[0.3])
    """Cosine similarity from which on such a search shows a message; one that shares words is shown too."""
    pressure_alert: bool | None = None
    """Whether it gets an alert when memory is short, and steps to save what it will need."""
    clock: AgentClock = "server"
    """messages: a message may say when it is said (`at`), and that is the time while it is answered, for
    histories that are replayed."""
    timezone: str = "UTC"
    """Of dates without a zone, an IANA name."""

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no IANA time zone, such as Europe/Berlin") from error
        return name
