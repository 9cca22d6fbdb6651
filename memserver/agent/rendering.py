"""How one entry of the history looks to the model, in each form.

As calls a message of the agent is a call and stands with its result, and what a person said has the time
in front. The compact form differs in what the agent said: that is its text alone. In plain chat all are
just their texts: a model that was trained on chats sees what it knows.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from memserver.agent.options import EntryForm
from memserver.messages import RESERVED, CallRecord, Entry, FunctionCall, PromptMessage
from memserver.text import stamp
from memserver.tools.memory_tools import SEND_MESSAGE

EVENT_MARK = "[event] "
"""How what happened without anybody's saying it begins, in the history as in prompts."""


def prompt_messages(
    message: Entry, zone: tzinfo = UTC, form: EntryForm = "calls"
) -> list[PromptMessage]:
    """One entry as the model sees it; in plain chat it may be nothing at all."""
    return RENDERERS[form](message, zone)


def user_text(text: str, at: datetime, zone: tzinfo = UTC) -> str:
    """What a person said, with the time at which it came."""
    return f"[{stamp(at, zone)}] {text}"


def is_sent(message: Entry) -> bool:
    """Whether an entry is a message of the agent that reached the person."""
    record = message.call
    return record is not None and record.call.name == SEND_MESSAGE and record.state == "done"


class Happening(NamedTuple):
    """Something that happened: in a word, which is empty where the text says it all, and more of it."""

    kind: str
    text: str = ""
    expires_at: datetime | None = None


def event_text(kind: str, text: str) -> str:
    """What happened, as the history has it; an event of no known kind is its text."""
    return EVENT_MARK + ": ".join(part for part in (kind, text) if part)


def result_text(record: CallRecord) -> str:
    if record.state == "done":
        return f"OK. {record.result}" if record.result else "OK"
    return f"Failed: {record.result}"


def _as_calls(message: Entry, zone: tzinfo) -> list[PromptMessage]:
    """A call always stands with its result."""
    if (
        message.role == "user"
    ):  # the two commonest first, without calls of their own: a prompt has many of them
        text = f"[{stamp(message.created_at, zone)}] {message.text}"
        said = PromptMessage("user", text, None, None, message.pictures)
        return [_notice(message.chat_note), said] if message.chat_note else [said]
    if message.role == "system":
        return [_notice(message.text)]
    record, fields = message.call or _as_call(message), message.fields
    result = "OK" if record.state == "done" and not record.result else result_text(record)
    shown = [
        PromptMessage("assistant", "", record.call, fields),
        PromptMessage("tool", result, record.call),
    ]
    return [*shown, _shown_by(message, record)] if message.pictures else shown


def _compact(message: Entry, zone: tzinfo) -> list[PromptMessage]:
    """As calls, except that what reached the person is its text."""
    if message.role == "assistant" and (message.call is None or is_sent(message)):
        return [PromptMessage("assistant", message.text, fields=message.fields)]
    return _as_calls(message, zone)


def _in_chat(message: Entry, _zone: tzinfo) -> list[PromptMessage]:
    """The text alone. A message that reached nobody is left out; calls of earlier times are described.

    These are no texts of the assistant, so that the model doesn't take to writing calls.
    """
    record = message.call
    if message.role == "user":
        said = [PromptMessage("user", message.text, pictures=message.pictures)]
        return [_notice(message.chat_note), *said] if message.chat_note else said
    if message.role == "system":
        return [_notice(message.text)]
    if record is None or record.call.name == SEND_MESSAGE:
        sent = message.text.strip() if record is None or record.state == "done" else ""
        return [PromptMessage("assistant", sent)] if sent else []
    given = {key: value for key, value in record.call.arguments.items() if key not in RESERVED}
    call = f"{record.call.name} {json.dumps(given, ensure_ascii=False)}"
    called = _notice(f"You called {call}. {result_text(record)}")
    return [called, _shown_by(message, record)] if message.pictures else [called]


RENDERERS: Mapping[EntryForm, Callable[[Entry, tzinfo], list[PromptMessage]]] = {
    "calls": _as_calls,
    "compact": _compact,
    "chat": _in_chat,
}


def _shown_by(message: Entry, record: CallRecord) -> PromptMessage:
    """The pictures of a call's result: endpoints take them in user messages alone."""
    text = f"{EVENT_MARK}pictures: {record.call.name} shows you this."
    return PromptMessage("user", text, pictures=message.pictures)


def _notice(text: str) -> PromptMessage:
    # Many chat templates take a system message in first place only.
    return PromptMessage("user", text if text.startswith(EVENT_MARK) else f"[system] {text}")


def _as_call(message: Entry) -> CallRecord:
    """An imported answer, shown as the call by which the agent would have said it."""
    call = FunctionCall(f"call_{message.position}", SEND_MESSAGE, {"message": message.text})
    return CallRecord(call, "done", "", message.created_at)
