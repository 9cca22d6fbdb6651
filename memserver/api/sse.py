"""A turn's events as server-sent events: `event:` is the type, `data:` one JSON object."""

from collections.abc import Iterator
from typing import Any

from memserver.agent.events import (
    Compacted,
    Event,
    StepCommitted,
    TextDelta,
    TurnEnded,
    TurnPaused,
    TurnQueued,
    TurnStarted,
    WakeUp,
)
from memserver.api.event_stream import event_data
from memserver.api.schemas.answers import waiting_call
from memserver.messages import Entry
from memserver.wire import messages as wire


def encode(event: Event) -> Iterator[str]:
    """The frames of one event."""
    match event:
        case TurnStarted(turn):
            yield frame("turn_started", {"turn": turn})
        case TextDelta(step, text):
            yield frame("message_delta", {"step": step, "text": text})
        case StepCommitted(messages):
            for message in messages:
                yield from _message(message)
        case Compacted(evicted, method, failure):
            data = {"evicted": evicted, "summary": method, "failure": failure}
            yield frame("memory_changed", data)
        case TurnPaused():
            yield from _paused(event)
        case TurnQueued(turn):
            call = waiting_call(event.blocked_by, event.expires_at).model_dump(mode="json")
            yield frame("turn_queued", {"turn": turn, "blocked_by": call})
        case TurnEnded():
            yield from _ended(event)
        case WakeUp():
            return


def frame(kind: str, data: dict[str, Any], position: int | None = None) -> str:
    """One event on the wire.

    With a position it has an id, by which a client that lost the connection reads on.
    """
    head = f"event: {kind}\n" if position is None else f"id: {position}\nevent: {kind}\n"
    return f"{head}data: {event_data(data)}\n\n"


def _message(message: Entry) -> Iterator[str]:
    """A committed step: its thought, its call and the result, and what the agent said by it.

    The last of these events has the step's id: whoever has read it has read the step.
    """
    *before, (kind, data) = _parts(message)
    for part in before:
        yield frame(*part)
    yield frame(kind, data, message.position)


def _parts(message: Entry) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = wire.Message.model_validate(message).model_dump(mode="json")
    place = {"position": message.position}
    if message.role == "system":
        yield "system_note", {**place, "text": message.text}
        return
    if message.thought:
        yield "thought", {**place, "text": message.thought}
    call = whole["tool_call"]
    if call is not None:
        yield "tool_call", {**place, **{name: call[name] for name in ("id", "name", "arguments")}}
        result = {name: call[name] for name in ("id", "state", "result")}
        yield "tool_result", {**place, **result}
    if message.text or call is None:
        yield "message", whole


def _paused(event: TurnPaused) -> Iterator[str]:
    """The call that waits, without an id: who reads on after it begins with it again."""
    record = event.message.call
    assert record is not None
    for part in _parts(event.message):
        if part[0] != "tool_result":
            yield frame(*part)
    yield frame("usage", wire.Usage.model_validate(event.usage).model_dump())
    data = {
        "turn": event.turn,
        "steps": event.steps,
        "position": event.message.position,
        "call_id": record.call.id,
        "waits_for": record.waits_for,
    }
    yield frame("action_required", data)


def _ended(event: TurnEnded) -> Iterator[str]:
    yield frame("usage", wire.Usage.model_validate(event.usage).model_dump())
    if event.error is not None:
        yield frame("error", {"error": event.error})
    ended = {"turn": event.turn, "steps": event.steps, "stop_reason": event.stop_reason}
    yield frame("turn_ended", ended)
