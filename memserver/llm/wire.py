"""The wire form of prompts: native tool calling, and JSON mode.

What looks like a control token is escaped, whoever wrote it. A policy that is trained for JSON mode must be trained on
`json_messages`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memserver.llm.call_ids import nine_characters
from memserver.llm.control_tokens import escape_control_tokens
from memserver.llm.profile import Roles, SystemRole
from memserver.llm.provider_fields import with_call_fields, with_message_fields
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
BETWEEN = "\n\n"
CONTINUE = "[system] Continue."
"""What stands where the user would have to say something and hasn't."""
ACKNOWLEDGED = "OK."
"""What stands where the assistant would have to."""


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
        messages = _alternate(messages)
    return _fold_system(messages) if rules.system_role == "user" else messages


def _is_paired(prompt: Sequence[PromptMessage], index: int) -> bool:
    step = 1 if prompt[index].role == "assistant" else -1
    call, other = prompt[index].call, prompt[index + step : index + step + 1]
    roles = {prompt[index].role, *(each.role for each in other)}
    return roles == {"assistant", "tool"} and _id_of(other[0].call) == _id_of(call)


def _id_of(call: ToolCall | None) -> str | None:
    return call.id if call is not None else None


def _native(message: PromptMessage, rules: MessageRules, *, first: bool) -> JsonObject:
    call = message.call
    if call is None or message.role not in {"assistant", "tool"}:
        plain = _plain(message, first=first)
        fields = _sent_back(message, rules) if message.role == "assistant" else None
        return plain if fields is None else with_message_fields(plain, fields)
    text = escape_control_tokens(message.text)
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": nine_characters(call.id), "content": text}
    arguments = escape_control_tokens(_dumps(dict(call.arguments)))
    function = {"name": call.name, "arguments": arguments}
    made = {"id": nine_characters(call.id), "type": "function", "function": function}
    beside = text if rules.roles == "any" else ""  # Mistral has text or calls in a message
    fields = _sent_back(message, rules)
    if fields is None:
        return {"role": "assistant", "content": beside, "tool_calls": [made]}
    calls = [with_call_fields(made, fields)]
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


def _alternate(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages in turns, as the strictest templates demand; each result must stand right after its call already.

    Those of Mistral and Gemma: the user begins and ends, user and assistant take turns (a tool's result counts as the
    user's turn), and nothing but an assistant's message follows a tool's result.
    """
    head = list(messages[:1]) if messages and messages[0]["role"] == "system" else []
    turns: list[JsonObject] = []
    for message in messages[len(head) :]:
        if message["role"] == "tool" or "tool_calls" in message or message["content"].strip():
            _add(turns, message)
    if messages and (not turns or turns[-1]["role"] == "assistant"):
        turns.append(_user(CONTINUE))
    return head + turns


def _fold_system(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages with the system's at the head of the first user's."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, rest = messages[0]["content"], list(messages[1:])
    if rest and rest[0]["role"] == "user":
        system = BETWEEN.join(filter(None, (system, rest.pop(0)["content"])))
    return [_user(system), *rest]


def _add(turns: list[JsonObject], message: JsonObject) -> None:
    role, before = message["role"], turns[-1]["role"] if turns else None
    if before == role and _is_plain(message) and _is_plain(turns[-1]):
        turns[-1] = {"role": role, "content": turns[-1]["content"] + BETWEEN + message["content"]}
        return
    if role == "user" and before == "tool":
        turns.append({"role": "assistant", "content": ACKNOWLEDGED})
    elif role == "assistant" and before in (None, "assistant"):
        turns.append(_user(CONTINUE))
    turns.append(message)


def _is_plain(message: JsonObject) -> bool:
    """Whether it is nothing but text: a call stands alone, and what has fields is sent as it came."""
    return message["role"] != "tool" and message.keys() == {"role", "content"}


def _user(text: str) -> JsonObject:
    return {"role": "user", "content": text}
