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

from typing_extensions import override

from memserver.agent.live_text import Key, LiveText, TextDelta, TextReader
from memserver.errors import MemserverError
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
class TurnResult:
    """What came of a turn: it has ended, or somebody has to answer its last call or that of one before it."""

    ended: End
    messages: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Something of the turn has changed; the database knows what. Not for callers."""


Event = TurnStarted | MessageDelta | TextDelta | StepCommitted | MemoryChanged | End | WakeUp


class Subscription(asyncio.Queue[Event]):
    """Takes a turn's events; of its text what `reader` hasn't read, if that is wanted."""

    def __init__(self, key: Key, *, text: bool) -> None:
        super().__init__()
        self.key = key
        self.reader = TextReader()
        self.wants_text = text
        self.failure: MemserverError | None = None

    @override
    async def get(self) -> Event:
        """The next event. Raises what was given to `EventBus.stop`."""
        event = await super().get()
        if self.failure is not None:
            raise self.failure
        return event


class EventBus:
    """Hands a turn's events to those who wait for them."""

    def __init__(self) -> None:
        self._queues: dict[Key, list[Subscription]] = defaultdict(list)
        self._turns: dict[UUID, set[int]] = defaultdict(set)
        self.live_text = LiveText()
        self._failure: MemserverError | None = None

    def stop(self, failure: MemserverError) -> None:
        """End all subscriptions with an error, and those that come too late."""
        self._failure = failure
        for queues in self._queues.values():
            for queue in queues:
                self._end(queue)

    def _end(self, queue: Subscription) -> None:
        queue.failure = self._failure
        queue.put_nowait(WakeUp())

    def publish(self, agent_id: UUID, turn: int, event: Event) -> None:
        """Hand an event of a turn that runs here to everybody who has subscribed to it, in this process or another one."""
        match event:
            case TextDelta():
                self.live_text.add((agent_id, turn), event)
            case StepCommitted() | EndedTurn() | PausedTurn():
                self.live_text.close((agent_id, turn))
            case _:
                pass
        self.deliver(agent_id, turn, event)

    def deliver(self, agent_id: UUID, turn: int, event: Event) -> None:
        """Hand an event to everybody in this process who has subscribed to the turn."""
        for queue in self._queues.get((agent_id, turn), ()):
            queue.put_nowait(event)

    def notify(self, agent_id: UUID) -> None:
        """Have everybody look who waits for a turn of this agent."""
        for turn in self._turns.get(agent_id, ()):
            self.deliver(agent_id, turn, WakeUp())

    def wants_text(self, agent_id: UUID, turn: int) -> bool:
        """Whether somebody reads this turn's text while it is generated."""
        key = (agent_id, turn)
        here = any(each.wants_text for each in self._queues.get(key, ()))
        return here or self.live_text.is_read(key)

    def ask_for_text(self, subscription: Subscription) -> None:
        """See to it that the process which runs the turn sends its text, if that is wanted and it is time to ask."""
        if subscription.wants_text and (name := subscription.reader.name_to_ask_by()):
            self.live_text.ask(subscription.key, name)

    @contextmanager
    def subscribe(self, agent_id: UUID, turn: int, *, text: bool = False) -> Iterator[Subscription]:
        """A queue that takes the turn's events from now on; with `text` deltas, too, from the message's beginning."""
        key = (agent_id, turn)
        queue = Subscription(key, text=text)
        self._queues[key].append(queue)
        self._turns[agent_id].add(turn)
        if text and (so_far := self.live_text.so_far(key)):
            queue.put_nowait(WakeUp())  # first the steps before it
            queue.put_nowait(so_far)
        if self._failure is not None:
            self._end(queue)
        try:
            yield queue
        finally:
            self._queues[key].remove(queue)
            if not self._queues[key]:
                del self._queues[key]
                self._turns[agent_id].discard(turn)
                if not self._turns[agent_id]:
                    del self._turns[agent_id]
