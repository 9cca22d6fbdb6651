"""What an endpoint's refusal says about its profile, and what gives way then; adjusting.toml has the words and sources.

Each step takes something away from the request that was refused, so that there are few of them.
"""

import re
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from memserver.errors import ModelError, ModelNotFound, ModelRejected, ModelUnavailable
from memserver.llm.profile import EndpointProfile, ProfileChange
from memserver.llm.requests import PreparedRequest
from memserver.messages import JsonValue
from memserver.openai_http.errors import refusal_of

MOST_STEPS = 16
"""Of one request: more than the table can make."""
_NOT_ABOUT_THE_FORM = frozenset({401, 402, 403, 407, 408, 413, 429, 502, 503, 504})
_LOOKED_AT = 4000
_SHOWN = 200
_STAYS = object()
_TABLE = tomllib.loads(files(__package__).joinpath("adjusting.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Rule:
    """Where all of these patterns are found in a refusal, the first of these fields that can gives way."""

    says: tuple[re.Pattern[str], ...]
    gives_way: tuple[str, ...]


def _pattern(written: str | list[str]) -> re.Pattern[str]:
    text = written if isinstance(written, str) else "|".join(written)
    for name in ("denies", "lacks"):
        text = text.replace(f"<{name}>", f"(?:{'|'.join(_TABLE[name])})")
    return re.compile(text, re.IGNORECASE | re.DOTALL)


RULES = tuple(
    Rule(tuple(map(_pattern, rule["says"])), tuple(rule["gives_way"])) for rule in _TABLE["rules"]
)
_UNWANTED = _pattern("<denies>|please remove")
"""deepseek-reasoner says the latter."""
_WANTED = _pattern("missing|must be (?:passed|provided|included|sent|present)|required|passed back")


def adjust(
    profile: EndpointProfile, fixed: Collection[str], error: ModelError, request: PreparedRequest
) -> tuple[EndpointProfile, ProfileChange] | None:
    """The profile with which a refused request may be taken, and what is different in it; the `fixed` fields stay.

    None where the refusal says nothing that the table knows, or nothing is left to take away.
    """
    words = words_of(error)
    if words is None:
        return None
    names = list[str]()
    if _UNWANTED.search(words) and not _WANTED.search(words):
        # Groq: https://github.com/janhq/jan/issues/8136; Mistral: https://github.com/charmbracelet/crush/issues/1590
        extras = "|".join(map(re.escape, _extras(request)))
        if extras and re.search(rf"(?<![\w-])(?:{extras})(?![\w-])", words):
            names.append("returned_fields")
    for rule in RULES:
        if all(pattern.search(words) for pattern in rule.says):
            names += rule.gives_way
    for name in names:
        field = _FIELD_OF.get(name, name)
        value = _STAYS if field in fixed else _NEXT[name](profile, request)
        if value is not _STAYS and value != getattr(profile, field):
            return _change(profile, field, value, words)
    return None


def words_of(error: ModelError) -> str | None:
    """What a refusal of a request's form says; None of any other failure."""
    refusal = refusal_of(error)
    if refusal is None or refusal.status in _NOT_ABOUT_THE_FORM:
        return None
    if not isinstance(error, ModelRejected | ModelUnavailable) or isinstance(error, ModelNotFound):
        return None
    return f"{refusal.words[:_LOOKED_AT]} {refusal.kind}".strip()


def _change(
    profile: EndpointProfile, field: str, value: JsonValue, words: str
) -> tuple[EndpointProfile, ProfileChange]:
    words = " ".join(words.split())
    shown = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
    change = ProfileChange(field, getattr(profile, field), value, f'the endpoint said "{shown}"')
    return replace(profile, **{field: value}), change


_Next = Callable[[EndpointProfile, PreparedRequest], Any]


def _next_choice(_profile: EndpointProfile, request: PreparedRequest) -> object:
    sent = request.fields.get("tool_choice")
    if isinstance(sent, dict):
        return "required"
    return {"required": "auto", "auto": "unset"}.get(str(sent), _STAYS)


def _next_limit(_profile: EndpointProfile, request: PreparedRequest) -> object:
    if "max_tokens" in request.fields:
        return "max_completion_tokens"
    return "unset" if "max_completion_tokens" in request.fields else _STAYS


def _next_mode(_profile: EndpointProfile, request: PreparedRequest) -> object:
    if request.offers_tools:
        return "json_schema"
    return "text" if request.has_schema else _STAYS


def _if(value: object, holds: Callable[[PreparedRequest], object]) -> _Next:
    return lambda _, request: value if holds(request) else _STAYS


_STANDARD = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "name", "id", "type", "function"}
)


def _extras(request: PreparedRequest) -> set[str]:
    """The names of fields in messages and calls that are not OpenAI's."""
    messages = request.draft.messages
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return {name for each in (*messages, *calls) for name in each} - _STANDARD


def _has_calls(request: PreparedRequest) -> bool:
    return any("tool_calls" in message for message in request.draft.messages)


def _has_text_beside_calls(request: PreparedRequest) -> bool:
    messages = request.draft.messages
    return any("tool_calls" in message and message.get("content") for message in messages)


def _has_spoken(request: PreparedRequest) -> bool:
    return any(message["role"] == "assistant" for message in request.draft.messages)


def _has_pictures(request: PreparedRequest) -> bool:
    return any(isinstance(each.get("content"), list) for each in request.draft.messages)


def _is_strict(request: PreparedRequest) -> bool:
    return request.offers_tools and '"strict":true' in request.draft.prepared


_NEXT: dict[str, _Next] = {
    "mode": _next_mode,
    "tool_choice": _next_choice,
    "output_limit": _next_limit,
    "parallel_tool_calls": _if(False, lambda sent: "parallel_tool_calls" in sent.fields),
    "stream_options": _if(False, lambda sent: "stream_options" in sent.fields),
    "seed": _if(False, lambda sent: "seed" in sent.fields),
    "strict_tools": _if(False, _is_strict),
    "reasoning_effort": lambda profile, _: "none" if profile.reasoning_effort is None else _STAYS,
    "roles": lambda *_: "alternating",
    "system_role": lambda *_: "user",
    "returned_fields": _if("left_out", _extras),
    "reasoning_content": _if("reasoning_content", _has_spoken),
    "thought_signature": _if("thought_signature", _has_calls),
    "calls_without_tools": _if(False, lambda sent: _has_calls(sent) and not sent.offers_tools),
    "text_beside_calls": _if(False, _has_text_beside_calls),
    "pictures": _if(False, _has_pictures),
    "answer_root": _if("object", lambda sent: sent.has_schema),
}
"""The next value of what gives way, from what was sent."""
_FIELD_OF = {"reasoning_content": "missing_fields", "thought_signature": "missing_fields"}
