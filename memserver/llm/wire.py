"""The wire form of prompts.

Owns how a PromptMessage looks in native tool calling and in JSON mode; what looks like a control token
in it is escaped, whoever wrote it. A policy that is trained for JSON mode must be trained on
`json_messages`. Leaves sending to `openai_compatible`, the order of roles to `roles`, and what is read out
of an answer to `answers`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memserver.llm.call_ids import nine_characters
from memserver.llm.control_tokens import escape_control_tokens
from memserver.llm.profile import Roles, SystemRole
from memserver.llm.provider_fields import with_call_fields, with_message_fields
from memserver.llm.roles import alternating, system_folded
from memserver.llm.tool_schema import tools_as_text
from memserver.messages import JsonObject, PromptMessage, ProviderFields, ToolCall, ToolSpec

RESULT_MARK = "[result of "
"""How a tool's result starts in JSON mode, where it is a user message. What users write has a time in
front of it, so it can't be taken for one."""
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
    if rules.roles == "any":
        sent = [_native(each, rules, first=index == 0) for index, each in enumerate(prompt)]
    else:
        sent = [
            _native(each, rules, first=index == 0)
            if each.call is None or _is_paired(prompt, index)
            else _as_json(each, first=index == 0)
            for index, each in enumerate(prompt)
        ]
    return _by_rules(sent, rules)


def json_messages(
    prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec] = (), rules: MessageRules = ANY
) -> list[JsonObject]:
    """The prompt for JSON mode: calls are JSON text, results are user messages.

    The tools are told at the end of the system message, since the endpoint hears of them nowhere
    else. Prose beside a call is left out: the answer's schema has no place for it.
    """
    messages = [_as_json(message, first=index == 0) for index, message in enumerate(prompt)]
    if tools:
        told = tools_as_text(tools)
        if messages and messages[0]["role"] == "system":
            messages[0]["content"] += f"\n\n{told}"
        else:
            messages.insert(0, {"role": "system", "content": told})
    return _by_rules(messages, rules)


def call_as_json(call: ToolCall) -> str:
    return _dumps({"tool": call.name, "arguments": dict(call.arguments)})


def _by_rules(messages: list[JsonObject], rules: MessageRules) -> list[JsonObject]:
    if rules.roles == "alternating":
        messages = alternating(messages)
    return system_folded(messages) if rules.system_role == "user" else messages


def _is_paired(prompt: Sequence[PromptMessage], index: int) -> bool:
    """Whether a call has its result right after it, or a result its call before it."""
    step = 1 if prompt[index].role == "assistant" else -1
    call, other = prompt[index].call, prompt[index + step : index + step + 1]
    roles = {prompt[index].role, *(each.role for each in other)}
    return roles == {"assistant", "tool"} and _id_of(other[0].call) == _id_of(call)


def _id_of(call: ToolCall | None) -> str | None:
    return call.id if call is not None else None


def _native(message: PromptMessage, rules: MessageRules, *, first: bool) -> JsonObject:
    call, text = message.call, escape_control_tokens(message.text)
    if message.role == "tool" and call is not None:
        return {"role": "tool", "tool_call_id": nine_characters(call.id), "content": text}
    if message.role != "assistant":
        return _plain(message, first=first)
    fields = _sent_back(message, rules)
    if call is None:
        plain = _plain(message, first=first)
        return plain if fields is None else with_message_fields(plain, fields)
    function = {"name": call.name, "arguments": escape_control_tokens(_dumps(dict(call.arguments)))}
    asked = {"id": nine_characters(call.id), "type": "function", "function": function}
    beside = text if rules.roles == "any" else ""  # Mistral has text or calls in a message
    if fields is None:
        return {"role": "assistant", "content": beside, "tool_calls": [asked]}
    calls = [with_call_fields(asked, fields)]
    return with_message_fields(
        {"role": "assistant", "content": beside, "tool_calls": calls}, fields
    )


def _sent_back(message: PromptMessage, rules: MessageRules) -> ProviderFields | None:
    fields = message.fields
    return fields if fields is not None and fields.model == rules.fields_of else None


def _as_json(message: PromptMessage, *, first: bool) -> JsonObject:
    call = message.call
    if message.role == "tool" and call is not None:
        return {
            "role": "user",
            "content": f"{RESULT_MARK}{call.name}]\n{escape_control_tokens(message.text)}",
        }
    if message.role == "assistant" and call is not None:
        return {"role": "assistant", "content": escape_control_tokens(call_as_json(call))}
    return _plain(message, first=first)


def _plain(message: PromptMessage, *, first: bool) -> JsonObject:
    if message.role == "tool" or (message.role == "system" and not first):
        return {"role": "user", "content": f"{NOTICE_MARK}{escape_control_tokens(message.text)}"}
    return {"role": message.role, "content": escape_control_tokens(message.text)}


_dumps = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder at each call


def to_bytes(*parts: str) -> bytes:
    """JSON text in parts as the bytes to send; a lone surrogate, which has none, becomes "?"."""
    return "".join(parts).encode(errors="replace")
