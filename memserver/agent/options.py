"""An agent's own settings, as they may be set. What is stored was checked so, and is read as `AgentOptions`."""

from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, field_validator

from memserver.wire.agents import AgentClock as AgentClock
from memserver.wire.agents import AgentOptions as AgentOptions
from memserver.wire.agents import AgentProtocol as AgentProtocol
from memserver.wire.agents import HistoryForm as HistoryForm
from memserver.wire.agents import PromptOrder as PromptOrder

MOST_TOKENS = 100_000_000
"""More than any model has, and a number that arithmetic stays exact with."""


class AgentOptionsIn(AgentOptions):
    """What an agent may set for itself; what it leaves out is the server's setting."""

    model_config = ConfigDict(extra="forbid")

    context_window: int | None = Field(default=None, ge=512, le=MOST_TOKENS, examples=[8192])
    max_output_tokens: int | None = Field(default=None, ge=16, le=MOST_TOKENS, examples=[1024])
    max_steps: int | None = Field(default=None, ge=1, le=100)
    auto_recall_floor: float | None = Field(default=None, ge=0, le=1, examples=[0.3])

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no IANA time zone, such as Europe/Berlin") from error
        return name
