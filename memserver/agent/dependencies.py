"""What a turn works with: its collaborators, and the server's limits for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from memserver.agent.calls import CallLimits
from memserver.agent.context import Layout
from memserver.agent.events import EventBus
from memserver.agent.options import AgentOptions, HistoryForm, PromptOrder
from memserver.agent.rendering import EntryForm
from memserver.llm.base import ChatModel
from memserver.memory.archival import ArchivalStorage
from memserver.memory.recall import RecallStorage
from memserver.memory.summary import SummaryMethod
from memserver.prompts import Prompts
from memserver.storage.database import Database
from memserver.tools.toolbox import Toolbox

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time, as every server but one of a simulated world has it."""
    return datetime.now(UTC)


class ModelSource(Protocol):
    """Where a turn gets its model from."""

    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        """The model of this name; None is the server's default.

        Args:
            name: what the endpoint calls it.
            tenant: whose turn it is to wait for answers; nobody's where only tokens are counted.
        """
        ...

    async def wait_until_ready(self) -> None:
        """Wait while the models' endpoint is starting; one that failed says so when it is asked."""
        return

    def loading(self) -> str:
        """What the endpoint does before it can answer, for people; empty where it is not loading."""
        return ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The server's defaults for what an agent may set itself."""

    max_steps: int = 10
    max_output_tokens: int = 512
    prompt_order: PromptOrder = "working_context_first"
    history: HistoryForm = "calls"
    pressure_alert: bool = True
    auto_recall: bool = False
    auto_recall_floor: float = 0.3
    turn_timeout: float = 600
    """Seconds; of the server alone, no agent sets it."""
    waiting_call_seconds: float = 604_800
    """How long a call waits for an answer, of the server alone too."""
    calls: CallLimits = field(default_factory=CallLimits)

    def expiry(self, since: datetime) -> datetime:
        """Until when a call waits for an answer."""
        return since + timedelta(seconds=self.waiting_call_seconds)


@dataclass(frozen=True, slots=True)
class TurnDependencies:
    """The collaborators of a turn."""

    database: Database
    models: ModelSource
    archival: ArchivalStorage
    recall: RecallStorage
    tools: Toolbox
    prompts: Prompts
    events: EventBus
    limits: Limits
    summary_model: str | None = None
    summary_method: SummaryMethod = "model"
    clock: Clock = utc_now
    deadly: set[str] = field(default_factory=set)
    """Python functions that ran when a process ended: they run outside of this one."""


async def layout_of(model: ChatModel, options: AgentOptions, limits: Limits) -> Layout:
    """What an agent's prompt may hold: its own options before the server's limits."""
    window = await model.context_window()
    if options.context_window is not None:
        window = min(window, options.context_window)
    reserved = min(options.max_output_tokens or limits.max_output_tokens, window // 2)
    order = limits.prompt_order if options.protocol == "tools" else "working_context_first"
    return Layout(window, reserved, options.prompt_order or order)


def form_of(options: AgentOptions, limits: Limits) -> EntryForm:
    """How an agent's history looks in its prompts."""
    return "chat" if options.protocol == "chat" else options.history or limits.history


def auto_recall_floor(options: AgentOptions, limits: Limits) -> float | None:
    """The similarity from which on automatic recall shows a message; None where the agent has no such recall."""
    wanted = limits.auto_recall if options.auto_recall is None else options.auto_recall
    own = options.auto_recall_floor
    return (limits.auto_recall_floor if own is None else own) if wanted else None
