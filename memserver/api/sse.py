"""A turn's events as server-sent events: `event:` is the type, `data:` one JSON object."""

import json
from collections.abc import Iterator
from typing import Any

from memserver.agent.events import (
    Compacted,
    Event,
    StepCommitted,
    Stirred,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from memserver.api.schemas import MessageOut, UsageOut
from memserver.messages import Message


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
        case TurnEnded():
            yield from _ended(event)
        case Stirred():
            return


def frame(kind: str, data: dict[str, Any]) -> str:
    """One event on the wire. JSON escapes line breaks, so that the data is one line."""
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _message(message: Message) -> Iterator[str]:
    """A committed step: its thought, its call and the result, and what the agent said by it."""
    whole = MessageOut.read(message).model_dump(mode="json")
    place = {"position": message.position}
    if message.thought:
        yield frame("thought", {**place, "text": message.thought})
    call = whole["tool_call"]
    if call is not None:
        told = {name: call[name] for name in ("id", "name", "arguments")}
        yield frame("tool_call", {**place, **told})
        yield frame(
            "tool_result",
            {**place, "id": call["id"], "state": call["state"], "result": call["result"]},
        )
    if message.role == "system":
        yield frame("system_note", {**place, "text": message.text})
    elif message.text:
        yield frame("message", whole)


def _ended(event: TurnEnded) -> Iterator[str]:
    yield frame("usage", UsageOut.read(event.usage).model_dump())
    if event.error is not None:
        yield frame("error", {"error": event.error})
    ended = {"turn": event.turn, "steps": event.steps, "stop_reason": event.stop_reason}
    yield frame("turn_ended", ended)
