"""What a turn works with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from memserver.agent.events import EventBus
from memserver.agent.options import Limits
from memserver.llm.base import ChatModel
from memserver.llm.overview import EndpointOverview
from memserver.memory.archival import ArchivalStorage
from memserver.memory.recall import RecallStorage
from memserver.memory.summary import SummaryMethod
from memserver.prompts import Prompts
from memserver.storage.database import Database
from memserver.telemetry.metrics import NO_METRICS, Recorder
from memserver.tools.registry import ToolRegistry

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time, as every server but one of a simulated world has it."""
    return datetime.now(UTC)


class ModelSource(Protocol):
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        """The model of this name; None is the server's default.

        `tenant`: whose turn it is to wait for answers; nobody's where only tokens are counted.
        """
        ...

    def observe(self, recorder: Recorder) -> None:  # noqa: ARG002 - for those that can
        """Have all requests to models measured from now on."""
        return

    async def inspect(self) -> EndpointOverview | None:
        """The models' endpoint as it is now; None where they have none."""
        return None

    async def describe_engines(self) -> str:
        """How each of several engines does, for people; empty where there is one."""
        return ""

    async def wait_until_ready(self) -> None:
        """Wait while the models' endpoint is starting; one that failed says so at a request."""
        return

    def loading(self) -> str:
        """What the endpoint does before it can answer, for people; empty where it is not loading."""
        return ""


@dataclass(frozen=True, slots=True)
class TurnDependencies:
    database: Database
    models: ModelSource
    archival: ArchivalStorage
    recall: RecallStorage
    tools: ToolRegistry
    prompts: Prompts
    events: EventBus
    limits: Limits
    summary_model: str | None = None
    summary_method: SummaryMethod = "model"
    clock: Clock = utc_now
    metrics: Recorder = NO_METRICS
    deadly: set[str] = field(default_factory=set)
    """Python functions that ran when a process ended: they run outside of this one."""
