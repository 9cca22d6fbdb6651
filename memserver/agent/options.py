"""An agent's own settings, and the server's for what it leaves out."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, field_validator, model_validator

from memserver.memory.pictures import PictureLimits
from memserver.memory.queue import LEAST_OUTPUT
from memserver.messages import JsonObject
from memserver.wire.agents import AgentOptions, HistoryForm, PromptOrder

EntryForm = HistoryForm | Literal["chat"]
"""How entries of the history look: in plain chat there is no choice."""

MOST_TOKENS = 100_000_000
"""More than any model has, and a number that arithmetic stays exact with."""

REQUEST_SECONDS = 3600
"""How long a call of a tool of a client's request waits; the database's calls_overdue has it, too."""


class AgentOptionsIn(AgentOptions):
    """What an agent may set for itself; what it leaves out is the server's setting."""

    model_config = ConfigDict(extra="forbid")

    context_window: int | None = Field(default=None, ge=512, le=MOST_TOKENS, examples=[8192])
    max_output_tokens: int | None = Field(default=None, ge=16, le=MOST_TOKENS, examples=[1024])
    max_steps: int | None = Field(default=None, ge=1, le=100)
    daily_tokens: int | None = Field(default=None, ge=1, le=2**53, examples=[100000])
    auto_recall_floor: float | None = Field(default=None, ge=0, le=1, examples=[0.3])
    retention_days: int | None = Field(default=None, ge=1, le=36_500, examples=[365])

    @model_validator(mode="before")
    @classmethod
    def _without_old_names(cls, given: Any) -> Any:  # noqa: ANN401 - whatever the request has
        if isinstance(given, dict) and "protocol" in given:
            raise ValueError("the option `protocol` is called `reply_mode` now")
        return given

    def as_stored(self) -> JsonObject:
        options = self.model_dump(exclude_none=True, exclude_unset=True)
        return {"protocol" if name == "reply_mode" else name: options[name] for name in options}

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no IANA time zone, such as Europe/Berlin") from error
        return name


@dataclass(frozen=True, slots=True)
class Layout:
    """How much an agent's prompt may hold, and in which order.

    Attributes:
        window: tokens of prompt and output in all.
        reserved: those of them that are kept free for the output.
        order: where the working context stands.
        further: tokens that an output may have besides where the prompt leaves them free; the model has room for them
            outside this window.
    """

    window: int
    reserved: int
    order: PromptOrder
    further: int


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What a call that isn't ours may take.

    Attributes:
        seconds: how long, unless the tool says otherwise.
        characters: of its result.
        pictures: each that it returns.
    """

    seconds: float = 60
    characters: int = 20_000
    pictures: PictureLimits = field(default_factory=PictureLimits)


@dataclass(frozen=True, slots=True)
class Limits:
    """The server's defaults for what an agent may set itself.

    Two no agent sets: `turn_timeout` in seconds, and for how many a waiting call waits for an answer.
    """

    max_steps: int = 10
    max_output_tokens: int = 512
    prompt_order: PromptOrder = "working_context_first"
    history: HistoryForm = "calls"
    pressure_alert: bool = True
    auto_recall: bool = False
    auto_recall_floor: float = 0.3
    trace: bool = False
    turn_timeout: float = 600
    waiting_call_seconds: float = 604_800
    calls: CallLimits = field(default_factory=CallLimits)

    def expiry(self, since: datetime, *, of_request: bool) -> datetime:
        """Until when a call waits that has waited since then; `of_request`: for a client that may need no answer."""
        most = REQUEST_SECONDS if of_request else self.waiting_call_seconds
        return since + timedelta(seconds=min(most, self.waiting_call_seconds))

    def layout(self, options: AgentOptions, window: int) -> Layout:
        """What an agent's prompt may hold, of a model that sees so many tokens."""
        own = min(window, options.context_window or window)
        wanted = min(options.max_output_tokens or self.max_output_tokens, window // 2)
        reserved = min(wanted, max(LEAST_OUTPUT, wanted - (window - own)), own // 2)
        order = self.prompt_order if options.reply_mode == "tools" else "working_context_first"
        return Layout(own, reserved, options.prompt_order or order, wanted - reserved)

    def traces(self, options: AgentOptions) -> bool:
        """Whether what an agent's model is sent and replies is stored."""
        return self.trace if options.trace is None else options.trace

    def form(self, options: AgentOptions) -> EntryForm:
        return "chat" if options.reply_mode == "chat" else options.history or self.history

    def recall_floor(self, options: AgentOptions) -> float | None:
        """The similarity from which on automatic recall shows a message; None: the agent has no such recall."""
        wanted = self.auto_recall if options.auto_recall is None else options.auto_recall
        own = options.auto_recall_floor
        return (self.auto_recall_floor if own is None else own) if wanted else None
