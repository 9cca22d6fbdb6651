"""How calls and turns end that could not do what they were for: what the model reads, and the caller."""

from typing import Literal

from memserver.errors import MemserverError, ServerStopping, TurnAbandoned
from memserver.messages import CallRecord, JsonObject

INTERRUPTED = "The server stopped while this ran; whether it took effect is not known."
DIED = "Its process ended while this ran; whether it took effect is not known."
CUT_OFF = "The turn's time was over while this ran; whether it took effect is not known."
CANCELLED = "This was cancelled before it ran."
NOT_APPROVED = "Nobody approved this in time, so it did not run."
NO_RESULT = "No result of this came in time; whether it took effect is not known."
GONE = "This tool is no longer there."


def closed_by(record: CallRecord) -> tuple[Literal["done", "failed"], str]:
    """The state and result of a call that waited, as its answer has them; one that was approved has to run."""
    answer = record.answer or {}
    if answer.get("expired") or (answer.get("superseded") and "state" not in answer):
        return "failed", NO_RESULT if record.waits_for == "client" else NOT_APPROVED
    if record.waits_for == "client":
        return answer["state"], answer["result"]
    reason = answer.get("reason")
    return "failed", f"A person refused this{f': {reason}' if reason else '.'}"


def abandoned() -> TurnAbandoned:
    """What becomes of a turn that kills the process that runs it."""
    return TurnAbandoned(
        "The turn was given up: each time that it was tried, the server's process ended.",
        hint="The agent can be used on. The log says what the turn was doing.",
    )


def as_json(error: MemserverError) -> JsonObject:
    """An error as it is stored with a turn and shown to callers."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def stopping() -> ServerStopping:
    """The server ends before a turn does, which another one resumes, or this one when it is back."""
    return ServerStopping(
        "The server is ending; the message is stored and will be answered.",
        hint="Ask again with the same Idempotency-Key, or read the agent's messages.",
    )
