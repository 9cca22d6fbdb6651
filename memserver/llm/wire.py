"""The wire form of prompts, and what is read out of a chat completion's answer.

Owns how a PromptMessage looks in native tool calling and in JSON mode; what looks like a control token
in it is `defused`, whoever wrote it. A policy that is trained for JSON mode must be trained on
`json_messages`. Leaves sending to `endpoint`, and finding the call to `reply_parser`.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memserver.llm.control_tokens import defused
from memserver.llm.profile import Roles, SystemRole
from memserver.llm.reply_parser import RawCall, RawReply
from memserver.llm.tool_schema import tools_as_text
from memserver.messages import JsonObject, PromptMessage, ToolCall, ToolSpec, Usage

RESULT_MARK = "[result of "
"""How a tool's result starts in JSON mode, where it is a user message. What users write has a time in
front of it, so it can't be taken for one."""
MOST_CALLS = 1000
"""That are read of one event: the first one counts."""
NOTICE_MARK = "[system] "
"""How a later system message starts, as a user message: many chat templates take only one, first."""


@dataclass(frozen=True, slots=True)
class MessageRules:
    """What an endpoint demands of a prompt's messages; the defaults demand nothing.

    Attributes:
        roles: whether user and assistant must take turns.
        system_role: where the system message stands.
        fields_of: the model whose provider fields are sent back; None sends none.
    """

    roles: Roles = "any"
    system_role: SystemRole = "system"
    fields_of: str | None = None


ANY = MessageRules()


def native_messages(prompt: Sequence[PromptMessage], rules: MessageRules = ANY) -> list[JsonObject]:
    """The prompt for native tool calling."""
    return [_native(message, first=index == 0) for index, message in enumerate(prompt)]


def json_messages(
    prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec] = (), rules: MessageRules = ANY
) -> list[JsonObject]:
    """The prompt for JSON mode: calls are JSON text, results are user messages.

    The tools are told at the end of the system message, since the endpoint hears of them nowhere
    else. Prose beside a call is left out: the answer's schema has no place for it.
    """
    messages = [_as_json(message, first=index == 0) for index, message in enumerate(prompt)]
    if not tools:
        return messages
    told = tools_as_text(tools)
    if messages and messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{told}"
    else:
        messages.insert(0, {"role": "system", "content": told})
    return messages


def call_as_json(call: ToolCall) -> str:
    """A call as JSON mode writes it."""
    return _dumps({"tool": call.name, "arguments": dict(call.arguments)})


def raw_reply(answer: Mapping[str, Any]) -> RawReply:
    """The reply in an answer that came whole. Anything of an unexpected type counts as absent."""
    choice = _mapping(_first(answer.get("choices")))
    message = _mapping(choice.get("message"))
    calls = message.get("tool_calls")
    functions = (
        [_mapping(_mapping(call).get("function")) for call in calls or ()]
        if isinstance(calls, list)
        else []
    )
    return RawReply(
        content=_text(message.get("content")),
        calls=tuple(
            RawCall(function.get("name"), function.get("arguments")) for function in functions
        ),
        reasoning=_reasoning(message),
        finish_reason=_text(choice.get("finish_reason")),
    )


def usage_of(answer: Mapping[str, Any]) -> Usage:
    """The tokens in an answer, or in the last event of a stream."""
    usage = _mapping(answer.get("usage"))
    details = _mapping(usage.get("prompt_tokens_details"))
    return Usage(
        _number(usage.get("prompt_tokens")),
        _number(usage.get("completion_tokens")),
        _number(details.get("cached_tokens")),
    )


class StreamedReply:
    """Puts the events of a stream together, and tells which text of the first call each brought."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.first_name: str = ""
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _StreamedCall] = {}
        self._first = sys.maxsize
        self._finish_reason = ""

    def add(self, event: Mapping[str, Any]) -> tuple[str, str]:
        """Take an event; give the content and the first call's argument text that it brought."""
        if event.get("usage"):
            self.usage = usage_of(event)
        choice = _mapping(_first(event.get("choices")))
        delta = _mapping(choice.get("delta"))
        self._finish_reason = _text(choice.get("finish_reason")) or self._finish_reason
        content = _text(delta.get("content"))
        self._content.append(content)
        self._reasoning.append(_reasoning(delta))
        calls = delta.get("tool_calls")
        if not isinstance(calls, list):
            return content, ""
        return content, "".join(self._add_call(_mapping(call)) for call in calls[:MOST_CALLS])

    def whole(self) -> RawReply:
        """The reply, when the stream has ended."""
        return RawReply(
            content="".join(self._content),
            calls=tuple(
                RawCall(call.name, "".join(call.arguments))
                for _, call in sorted(self._calls.items())
            ),
            reasoning="".join(self._reasoning),
            finish_reason=self._finish_reason,
        )

    def _add_call(self, call: Mapping[str, Any]) -> str:
        index = _number(call.get("index"))
        known = self._calls.setdefault(index, _StreamedCall())
        function = _mapping(call.get("function"))
        known.name += _text(function.get("name"))
        brought = function.get("arguments")
        text = brought if isinstance(brought, str) else _dumps(brought) if brought else ""
        known.arguments.append(text)
        self._first = min(self._first, index)
        if index != self._first:
            return ""
        self.first_name = known.name
        return text


@dataclass(slots=True)
class _StreamedCall:
    name: str = ""
    arguments: list[str] = field(default_factory=list)


def _native(message: PromptMessage, *, first: bool) -> JsonObject:
    call, text = message.call, defused(message.text)
    if message.role == "tool" and call is not None:
        return {"role": "tool", "tool_call_id": call.id, "content": text}
    if message.role == "assistant" and call is not None:
        function = {"name": call.name, "arguments": defused(_dumps(dict(call.arguments)))}
        asked = [{"id": call.id, "type": "function", "function": function}]
        return {"role": "assistant", "content": text, "tool_calls": asked}
    return _plain(message, first=first)


def _as_json(message: PromptMessage, *, first: bool) -> JsonObject:
    call = message.call
    if message.role == "tool" and call is not None:
        return {"role": "user", "content": f"{RESULT_MARK}{call.name}]\n{defused(message.text)}"}
    if message.role == "assistant" and call is not None:
        return {"role": "assistant", "content": defused(call_as_json(call))}
    return _plain(message, first=first)


def _plain(message: PromptMessage, *, first: bool) -> JsonObject:
    if message.role == "tool" or (message.role == "system" and not first):
        return {"role": "user", "content": f"{NOTICE_MARK}{defused(message.text)}"}
    return {"role": message.role, "content": defused(message.text)}


def _reasoning(message: Mapping[str, Any]) -> str:
    return _text(message.get("reasoning_content")) or _text(message.get("reasoning"))


def _text(value: object) -> str:
    """A text; of a list of content parts, the texts of its parts."""
    if isinstance(value, list):
        return "".join(_text(_mapping(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first(values: object) -> object:
    return values[0] if isinstance(values, Sequence) and values else None


_dumps = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder at each call


def joined(parts: Iterable[str]) -> bytes:
    """JSON text in parts as the bytes to send; a lone surrogate, which has none, becomes "?"."""
    return "".join(parts).encode(errors="replace")
