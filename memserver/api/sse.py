"""A turn's events as server-sent events: `event:` is the type, `data:` one JSON object."""

from collections.abc import Iterator
from typing import Any

from memserver.agent.events import EndedTurn, Event, PausedTurn, QueuedTurn, StepCommitted, WakeUp
from memserver.agent.live_text import TextDelta
from memserver.api.event_stream import event_data, in_one_line
from memserver.api.schemas.answers import waiting_call
from memserver.messages import Entry
from memserver.wire.events import (
    EVENTS,
    ActionRequired,
    MemoryChanged,
    MessageDelta,
    MessageSaid,
    SystemNote,
    Thought,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnEvent,
    TurnQueued,
    TurnStarted,
    UsageCounted,
)

_NAMES = {kind: name for name, kind in EVENTS.items()}


def encode(event: Event) -> Iterator[str]:
    match event:
        case TurnStarted() | MessageDelta() | MemoryChanged():
            yield _frame(event)
        case StepCommitted(messages):
            for message in messages:
                # The last one has the step's id: a client that has read it has read the step.
                *before, last = _events_of(message)
                yield from map(_frame, before)
                yield _frame(last, message.position)
        case PausedTurn():
            yield from map(_frame, _events_of_pause(event))
        case QueuedTurn(turn):
            call = waiting_call(event.blocked_by, event.expires_at)
            yield _frame(TurnQueued(turn=turn, blocked_by=call))
        case EndedTurn(turn, steps, stop_reason):
            yield _frame(UsageCounted.model_validate(event.usage))
            if event.error is not None:
                yield error_frame({"error": event.error})
            yield _frame(TurnEnded(turn=turn, steps=steps, stop_reason=stop_reason))
        case WakeUp() | TextDelta():
            return


def error_frame(body: dict[str, Any]) -> str:
    return f"event: error\ndata: {event_data(body)}\n\n"


def _frame(event: TurnEvent, position: int | None = None) -> str:
    """One event on the wire. JSON escapes line breaks, so that the data is one line.

    With a position it has an id, by which a client that lost the connection reads on.
    """
    head = "" if position is None else f"id: {position}\n"
    return f"{head}event: {_NAMES[type(event)]}\ndata: {in_one_line(event.model_dump_json())}\n\n"


def _events_of(entry: Entry) -> Iterator[TurnEvent]:
    """Of a committed step: its thought, its call and the result, and what the agent said by it."""
    position, record = entry.position, entry.call
    if entry.role == "system":
        yield SystemNote(position=position, text=entry.text)
        return
    if entry.thought:
        yield Thought(position=position, text=entry.thought)
    if record is not None:
        call = record.call
        yield ToolCalled(
            position=position, id=call.id, name=call.name, arguments=dict(call.arguments)
        )
        yield ToolReturned(position=position, id=call.id, state=record.state, result=record.result)
    if entry.text or record is None:
        yield MessageSaid.model_validate(entry)


def _events_of_pause(event: PausedTurn) -> Iterator[TurnEvent]:
    """The call that waits, without an id: who reads on after it begins with it again."""
    record = event.message.call
    assert record is not None
    assert record.waits_for is not None
    yield from (each for each in _events_of(event.message) if not isinstance(each, ToolReturned))
    yield UsageCounted.model_validate(event.usage)
    yield ActionRequired(
        turn=event.turn,
        steps=event.steps,
        position=event.message.position,
        call_id=record.call.id,
        waits_for=record.waits_for,
    )
