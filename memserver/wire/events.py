"""What happens in a turn, as typed events of a stream."""

from typing import Any

from memserver.messages import CallState, WaitsFor
from memserver.wire.base import Record
from memserver.wire.messages import Message, Usage, WaitingCall


class TurnStarted(Record):
    """The turn was taken up."""

    turn: int


class MessageDelta(Record):
    """More text of the message that is being generated; provisional until its `MessageSaid`."""

    step: int
    text: str


class Thought(Record):
    """A step's inner thought."""

    position: int
    text: str


class ToolCalled(Record):
    """The call that a step made."""

    position: int
    id: str
    name: str
    arguments: dict[str, Any]


class ToolReturned(Record):
    """What came of a call."""

    position: int
    id: str
    state: CallState
    result: str | None


class MessageSaid(Message):
    """What the agent said, committed: this counts, whatever deltas came before it."""


class SystemNote(Record):
    """What the system said to the agent: that memory is short, or that its reply was no valid call."""

    position: int
    text: str


class MemoryChanged(Record):
    """Messages left the queue; `summary` says what wrote the summary, `failure` why not the model."""

    evicted: int
    summary: str
    failure: str | None


class UsageCounted(Usage):
    """The turn's tokens."""


class ActionRequired(Record):
    """The last event, for now: the turn waits, stored, for an approval of a call or for its result.

    The call itself came before, as `ToolCalled`; `calls` of the client gives the answer to it.
    """

    turn: int
    steps: int
    position: int
    call_id: str
    waits_for: WaitsFor


class TurnQueued(Record):
    """The last event, for now: the turn is stored, and is worked when the call `blocked_by` was answered."""

    turn: int
    blocked_by: WaitingCall


class TurnEnded(Record):
    """The last event."""

    turn: int
    steps: int
    stop_reason: str


TurnEvent = (
    TurnStarted
    | MessageDelta
    | Thought
    | ToolCalled
    | ToolReturned
    | MessageSaid
    | SystemNote
    | MemoryChanged
    | UsageCounted
    | ActionRequired
    | TurnQueued
    | TurnEnded
)

EVENTS: dict[str, type[TurnEvent]] = {
    "turn_started": TurnStarted,
    "message_delta": MessageDelta,
    "thought": Thought,
    "tool_call": ToolCalled,
    "tool_result": ToolReturned,
    "message": MessageSaid,
    "system_note": SystemNote,
    "memory_changed": MemoryChanged,
    "usage": UsageCounted,
    "action_required": ActionRequired,
    "turn_queued": TurnQueued,
    "turn_ended": TurnEnded,
}
"""By their names on the wire; those of a newer server that are not among them are skipped."""
