"""What a model's messages come with beyond the standard, such as reasoning_content or thought_signature.

Some providers refuse a history in which such a field is missing or changed. So all of them are kept, known
or not, and none is understood.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memserver.llm.control_tokens import escape_control_tokens
from memserver.llm.reply_parser import RawReply
from memserver.messages import JsonObject, JsonValue, ProviderFields
from memserver.text import checked_json

OF_MESSAGES = frozenset(
    {"role", "content", "name", "tool_calls", "refusal", "function_call", "audio", "annotations"}
)
OF_CALLS = frozenset({"index", "id", "type", "function"})
OF_FUNCTIONS = frozenset({"name", "arguments"})
MOST_CHARACTERS = 500_000
"""Of the fields of one message, as JSON; more than that is not kept."""
_NEVER_IN_PIECES = frozenset({"type", "format", "id", "index", "role", "name", "model", "object"})
_WRITTEN = ("text", "thinking", "summary")
_REPEATED = 32
"""Characters from which on a text that all pieces have alike is one that was repeated."""
_IDS = ("id", "tool_call_id")


def message_fields(message: Mapping[str, Any]) -> JsonObject:
    """What a message, or a piece of one, has beyond the standard; what is empty counts as absent."""
    return {key: value for key, value in message.items() if value and key not in OF_MESSAGES}


def call_fields(call: Mapping[str, Any]) -> JsonObject:
    """What a tool call, or a piece of one, has beyond the standard, inside its function too."""
    found = {key: value for key, value in call.items() if value and key not in OF_CALLS}
    function = call.get("function")
    inside = function if isinstance(function, dict) else {}
    more = {key: value for key, value in inside.items() if value and key not in OF_FUNCTIONS}
    return {**found, "function": more} if more else found


def join_pieces(pieces: Sequence[Mapping[str, Any]]) -> JsonObject:
    """Pieces of a stream as one: texts are joined, lists extended, objects merged."""
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            found.setdefault(key, []).append(value)
    return {key: _join_values(key, values) for key, values in found.items()}


def provider_fields(model: str, reply: RawReply, call_id: str) -> ProviderFields | None:
    """What is kept of a reply's fields with its first call; None where there is nothing, or too much.

    `call_id` is what we call the first call: its id is another one wherever a field names it.
    """
    first, others = reply.calls[:1], reply.calls[1:]
    if not reply.fields and not any(call.fields for call in first):
        return None
    came = [dict(reply.fields), *(dict(call.fields) for call in first)]
    try:
        if len(json.dumps(came)) > MOST_CHARACTERS:
            return None
        message, *calls = checked_json(came)
    except (ValueError, RecursionError):
        return None
    ids = {call.id: "" for call in others} | {call.id: call_id for call in first}
    renamed = _rename(message, {old: new for old, new in ids.items() if old})
    return ProviderFields(model, renamed, *calls)


def with_message_fields(message: JsonObject, fields: ProviderFields) -> JsonObject:
    """A message as it goes back; no field takes the place of a standard one."""
    return {**message, **_sent(fields.message, OF_MESSAGES)}


def with_call_fields(call: JsonObject, fields: ProviderFields) -> JsonObject:
    inside = fields.call.get("function")
    more = _sent(inside, OF_FUNCTIONS) if isinstance(inside, dict) else {}
    return {**call, "function": {**call["function"], **more}, **_sent(fields.call, OF_CALLS)}


def _sent(fields: Mapping[str, Any], standard: frozenset[str]) -> JsonObject:
    return {key: _escape(value) for key, value in fields.items() if key not in standard}


def _escape(value: JsonValue) -> JsonValue:
    """What could be rendered as text is made harmless; what is signed has to stay as it is."""
    if isinstance(value, str):
        return escape_control_tokens(value)
    if isinstance(value, list):
        return [_escape(each) for each in value]
    if not isinstance(value, dict) or value.get("signature"):
        return value
    return {key: _escape(each) for key, each in value.items()}


def _rename(value: JsonValue, ids: Mapping[str, str]) -> JsonValue:
    """With our ids for the endpoint's; what belongs to a call that was dropped is dropped too."""
    if isinstance(value, list):
        return [_rename(each, ids) for each in value if not _is_dropped(each, ids)]
    if not isinstance(value, dict):
        return value
    return {
        key: ids[each]
        if key in _IDS and isinstance(each, str) and ids.get(each)
        else _rename(each, ids)
        for key, each in value.items()
    }


def _is_dropped(value: object, ids: Mapping[str, str]) -> bool:
    if not isinstance(value, dict):
        return False
    named = (value.get(key) for key in _IDS)
    return any(isinstance(each, str) and ids.get(each) == "" for each in named)


def _join_values(key: str, values: Sequence[Any]) -> JsonValue:
    values = [value for value in values if value is not None]
    if not values:
        return None
    if all(isinstance(value, str) for value in values):
        repeated = len(values[0]) >= _REPEATED and len(set(values)) == 1
        return values[-1] if repeated or key in _NEVER_IN_PIECES else "".join(values)
    if all(isinstance(value, list) for value in values):
        return _join_items([item for value in values for item in value])
    if all(isinstance(value, dict) for value in values):
        return join_pieces(values)
    return values[-1]


def _join_items(items: Sequence[Any]) -> list[Any]:
    """The items of a list that came in pieces: those of one index and type are pieces of one."""
    groups: list[list[Any]] = []
    places: dict[tuple[str, str], int] = {}
    for item in items:
        place = len(groups)
        if isinstance(item, dict):
            if item.get("index") is not None:
                key = (str(item["index"]), str(item.get("type")))
                place = places.setdefault(key, place)
            elif groups and _continues(groups[-1], item):
                place -= 1
        if place == len(groups):
            groups.append([])
        groups[place].append(item)
    return [join_pieces(group) if len(group) > 1 else group[0] for group in groups]


def _continues(group: Sequence[Any], item: Mapping[str, Any]) -> bool:
    """Whether an item without an index is more of the text before it; a signature ends one."""
    last = group[-1]
    return (
        isinstance(last, dict)
        and last.get("type") == item.get("type")
        and not last.get("signature")
        and any(isinstance(each.get(key), str) for key in _WRITTEN for each in (item,))
    )
