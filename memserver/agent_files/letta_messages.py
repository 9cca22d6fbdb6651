"""The messages of Letta's agent file as a history: what was said, and calls with their results."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from memserver.agent_files.records import MOST_JSON, CallPart, MessageRecord, TurnRecord
from memserver.agent_files.source import Note
from memserver.memory.bounded_json import read_bounded
from memserver.memory.dates import storable
from memserver.messages import JsonObject, Role
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.text import is_within
from memserver.tools.memory_tools import SEND_MESSAGE

LONGEST_TURN = 900
NO_RESULT = "The agent file has no result of this call."
SUCCEEDED = {"OK", "success"}
NO_MESSAGE = "Are no messages, and left out"
NO_TEXT = "Parts that are no text, such as images, and left out"
NO_TIME = "Have no time that can be read, and get that of the message before"
NO_ARGUMENTS = "Arguments of calls that can't be read, and left out"
LOST_RESULT = "Results of calls that are not in the file, and left out"
OWN_EVENT = "Letta's own events, logins and heartbeats, and left out"
EMPTY = "Have no text, and are left out"


@dataclass
class History:
    """`queue_start`: position of the first message that stands in the prompt."""

    messages: list[MessageRecord] = field(default_factory=list)
    turns: list[TurnRecord] = field(default_factory=list)
    queue_start: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """What of the messages is not carried, or in another form: how often each."""

    @property
    def notes(self) -> list[Note]:
        return [Note("message", "", f"{what}: {count}.") for what, count in self.left_out.items()]

    @property
    def next_position(self) -> int:
        """Where the next message goes: in the turn that runs."""
        turn = len(self.turns)
        last = self.messages[-1].position if self.messages else 0
        return last + 1 if last // PLACES_PER_TURN == turn else turn * PLACES_PER_TURN

    def add(
        self,
        role: Role,
        text: str,
        thought: str,
        at: datetime,
        call: CallPart | None,
        *,
        begins: bool,
    ) -> None:
        """Add a message; one that begins a turn, or is too far in one, stands in a new one."""
        position = self.next_position
        if begins or not self.turns or position % PLACES_PER_TURN >= LONGEST_TURN:
            turn = TurnRecord(
                turn=len(self.turns) + 1, kind="import", state="done", created_at=at, finished_at=at
            )
            self.turns.append(turn)
            position = self.next_position
        record = MessageRecord(
            position=position,
            role=role,
            text=text,
            thought=thought,
            tokens=0,
            created_at=at,
            call=call,
        )
        self.messages.append(record)


def read_history(agent: JsonObject) -> History:
    given = objects(agent.get("messages"))
    results = _results(given)
    shown = _in_context(agent, given)
    history = History()
    history.left_out[NO_MESSAGE] += len(as_list(agent.get("messages"))) - len(given)
    first_shown: int | None = None
    for number, message in enumerate(given):
        before = len(history.messages)
        _add(history, message, results, first=number == 0)
        if first_shown is None and number in shown and len(history.messages) > before:
            first_shown = history.messages[before].position
    history.left_out[LOST_RESULT] += len(results.keys() - _call_ids(given))
    history.left_out += Counter()  # those that are more than 0
    end = (len(history.turns) + 1) * PLACES_PER_TURN
    history.queue_start = end if first_shown is None else first_shown
    return history


def _add(
    history: History, message: JsonObject, results: Mapping[str, tuple[str, bool]], *, first: bool
) -> None:
    role = message.get("role")
    text, thought, dropped = _content(message.get("content"))
    history.left_out[NO_TEXT] += dropped
    at = read_time(history, message.get("created_at"))
    if role == "user":
        said, by = _unwrap(text)
        if said:
            history.add(by, said, "", at, None, begins=by == "user")
        else:
            history.left_out[OWN_EVENT if text else EMPTY] += 1
    elif role == "system":
        if text and not first:  # the first is the prompt, which is made again
            history.add("system", text, "", at, None, begins=False)
    elif role in ("assistant", "approval"):
        calls = objects(message.get("tool_calls"))
        thought = "\n".join(each for each in (thought, text if calls else "") if each)
        if text and not calls:
            history.add("assistant", text, thought, at, None, begins=False)
        elif not calls and (thought or role == "assistant"):
            history.left_out[EMPTY] += 1
        for call in calls:
            _add_call(history, call, thought, at, results)
            thought = ""
    elif role != "tool":
        name = str(role)[:100] if role else "no role"
        history.left_out[f"Of the unknown role {name!r}, kept as the system's"] += 1
        history.add("system", f"[{name}] {text}", thought, at, None, begins=False)


def read_time(history: History, value: object) -> datetime:
    """A message's time; where it can't be read, that of the message before."""
    at = time_of(value)
    if at is None:
        history.left_out[NO_TIME] += 1
        at = history.messages[-1].created_at if history.messages else datetime.now(UTC)
    return at


def _call_ids(messages: Sequence[JsonObject]) -> set[str]:
    calls = [each for message in messages for each in objects(message.get("tool_calls"))]
    return {str(each.get("id")) for each in calls}


def _add_call(
    history: History,
    given: JsonObject,
    thought: str,
    at: datetime,
    results: Mapping[str, tuple[str, bool]],
) -> None:
    function = given.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = str(function.get("name") or "unknown"), _arguments(function.get("arguments"))
    if function.get("arguments") and not arguments and function["arguments"] != "{}":
        history.left_out[NO_ARGUMENTS] += 1
    said = arguments.get("message")
    if name == SEND_MESSAGE and isinstance(said, str) and said:
        history.add(
            "assistant",
            said,
            thought or str(arguments.get("thinking") or ""),
            at,
            None,
            begins=False,
        )
        return
    call_id = str(given.get("id") or f"call_{history.next_position}")
    result, done = results.get(call_id, (NO_RESULT, False))
    ended: Literal["done", "failed", "interrupted"] = "done" if done else "failed"
    call = CallPart(
        id=call_id,
        name=name,
        arguments=arguments,
        state=ended if call_id in results else "interrupted",
        result=result,
        created_at=at,
        finished_at=at,
    )
    history.add("assistant", "", thought, at, call, begins=False)


def _results(messages: Sequence[JsonObject]) -> dict[str, tuple[str, bool]]:
    found: dict[str, tuple[str, bool]] = {}
    for message in messages:
        for given in objects(message.get("tool_returns")):
            if isinstance(given.get("tool_call_id"), str):
                text = given.get("func_response")
                done = str(given.get("status")) in SUCCEEDED
                shown = text if isinstance(text, str) else json.dumps(text)
                found[given["tool_call_id"]] = (shown, done)
        if message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
            text, _, _ = _content(message.get("content"))
            status = _object(text).get("status", "OK")
            found.setdefault(message["tool_call_id"], (text, str(status) in SUCCEEDED))
    return found


def _in_context(agent: JsonObject, messages: Sequence[JsonObject]) -> set[int]:
    """Which of the messages stand in the prompt, by number."""
    ids = agent.get("in_context_message_ids")
    if isinstance(ids, list):
        return {number for number, each in enumerate(messages) if each.get("id") in ids}
    numbers = agent.get("in_context_message_indices")
    if isinstance(numbers, list):
        return {each for each in numbers if isinstance(each, int)}
    return set(range(len(messages)))


def _content(content: object) -> tuple[str, str, int]:
    if isinstance(content, str):
        return content, "", 0
    texts, thoughts, dropped = [], [], 0
    for part in as_list(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "reasoning" and isinstance(part.get("reasoning"), str):
            thoughts.append(part["reasoning"])
        elif str(kind) not in (
            "redacted_reasoning",
            "omitted_reasoning",
            "tool_call",
            "tool_return",
        ):
            dropped += 1
    return "\n".join(texts), "\n".join(thoughts), dropped


def _unwrap(text: str) -> tuple[str, Role]:
    """What a user's message says: Letta wraps some in JSON, and sends its own events in the same way."""
    wrapped = _object(text)
    kind, said = wrapped.get("type"), wrapped.get("message")
    if not isinstance(kind, str):
        return text, "user"
    if kind == "user_message" and isinstance(said, str):
        return said, "user"
    if kind in ("login", "heartbeat"):
        return "", "system"
    if kind == "system_alert" and isinstance(said, str):
        return said, "system"
    return text, "user"


def objects(value: object) -> list[JsonObject]:
    """The objects in a list; none where there is something else."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def as_list(value: object) -> list[Any]:
    """A list, or an empty one where there is something else."""
    return value if isinstance(value, list) else []


def _arguments(value: object) -> JsonObject:
    """A call's arguments, or none where they are no object, or larger than is stored."""
    found = value if isinstance(value, dict) else _object(value)
    return found if is_within(found, MOST_JSON) else {}


def _object(text: object) -> dict[str, Any]:
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return {}
    try:
        value = read_bounded(text.encode())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def time_of(value: object) -> datetime | None:
    """A time of such a file; one without a zone is in UTC. None: it is none."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        return at and storable(at if at.tzinfo else at.replace(tzinfo=UTC))
    except ValueError:
        return None
