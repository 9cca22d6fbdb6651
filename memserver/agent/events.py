"""What happens in a turn, as values, and their subscribers.

Deltas are provisional; every other event describes what has been committed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from memserver.messages import Entry, JsonObject, TokenUsage
from memserver.storage.calls import OpenCall
from memserver.wire.events import MemoryChanged, MessageDelta, TurnStarted


@dataclass(frozen=True, slots=True)
class StepCommitted:
    messages: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """The turn is over; `error` is set when it failed."""

    turn: int
    steps: int
    stop_reason: str
    usage: TokenUsage
    error: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class PausedTurn:
    """The turn waits, stored, until somebody answers the call that `message` made."""

    turn: int
    steps: int
    usage: TokenUsage
    message: Entry
    stop_reason: str = "requires_action"
    error: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class QueuedTurn:
    """The turn is stored, and is worked once an earlier one has ended that waits with the call `blocked_by`.

    At `expires_at` that one resumes without an answer.
    """

    turn: int
    blocked_by: OpenCall
    expires_at: datetime
    steps: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    stop_reason: str = "queued"
    error: JsonObject | None = None


End = EndedTurn | PausedTurn | QueuedTurn
"""What comes last of a turn, for now or for good."""


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Something of the turn has changed; the database knows what. Not for callers."""


Event = TurnStarted | MessageDelta | StepCommitted | MemoryChanged | End | WakeUp


class EventBus:
    """Hands a turn's events to those in this process who wait for them."""

    def __init__(self) -> None:
        self._queues: dict[tuple[UUID, int], list[asyncio.Queue[Event]]] = defaultdict(list)
        self._turns: dict[UUID, set[int]] = defaultdict(set)
        self._wanting_text: set[tuple[UUID, int]] = set()

    def publish(self, agent_id: UUID, turn: int, event: Event) -> None:
        """Hand an event to everybody who has subscribed to this turn."""
        for queue in self._queues.get((agent_id, turn), ()):
            queue.put_nowait(event)

    def notify(self, agent_id: UUID) -> None:
        """Have everybody look who waits for a turn of this agent."""
        for turn in self._turns.get(agent_id, ()):
            self.publish(agent_id, turn, WakeUp())

    def wants_text(self, agent_id: UUID, turn: int) -> bool:
        """Whether somebody in this process reads this turn's text while it is generated."""
        return (agent_id, turn) in self._wanting_text

    @contextmanager
    def subscribe(
        self, agent_id: UUID, turn: int, *, text: bool = False
    ) -> Iterator[asyncio.Queue[Event]]:
        """A queue that takes the turn's events from now on; with `text` deltas, too."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        key = (agent_id, turn)
        self._queues[key].append(queue)
        self._turns[agent_id].add(turn)
        if text:
            self._wanting_text.add(key)
        try:
            yield queue
        finally:
            self._queues[key].remove(queue)
            if not self._queues[key]:
                del self._queues[key]
                self._wanting_text.discard(key)
                self._turns[agent_id].discard(turn)
                if not self._turns[agent_id]:
                    del self._turns[agent_id]
