"""The wire form of prompts: native tool calling, and JSON mode.

What looks like a control token is escaped, no matter who wrote it. A policy that is trained for JSON mode must be trained on
`json_messages`.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace

from memserver.llm.call_ids import nine_characters
from memserver.llm.control_tokens import escape_control_tokens
from memserver.llm.profile import EndpointProfile
from memserver.llm.provider_fields import with_call_fields, with_message_fields
from memserver.llm.tool_schema import tools_as_text
from memserver.messages import FunctionCall, JsonObject, Picture, Prompt, PromptMessage, ToolSpecs

RESULT_MARK = "[result of "
"""How a tool's result starts in JSON mode, where it is a user message. What users write has a time in
front of it, so it can't be taken for one."""
NOTICE_MARK = "[system] "
"""How a later system message starts, as a user message: many chat templates take only one, first."""


_FILLERS: dict[str, JsonObject] = {
    # An empty text is taken: https://github.com/can1357/oh-my-pi/issues/787
    "reasoning_content": {"reasoning_content": ""},
    # https://ai.google.dev/gemini-api/docs/thought-signatures: for calls that Gemini didn't make.
    "thought_signature": {
        "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}
    },
}
_USUAL = EndpointProfile()
BETWEEN = "\n\n"
UNSEEN = "\n[system] This model can't see pictures; say so if that matters."
CONTINUE = "[system] Continue."
"""What stands where the user would have to say something and hasn't."""
ACKNOWLEDGED = "OK."
"""What stands where the assistant would have to."""


def native_messages(
    prompt: Prompt, profile: EndpointProfile = _USUAL, fields_of: str | None = None
) -> list[JsonObject]:
    """The prompt for native tool calling; provider fields of the model `fields_of` go back to it."""
    prompt = _shown(prompt, profile)
    free = profile.roles == "any"
    sent = [
        _native(each, fields_of, free=free, first=index == 0)
        if free or each.call is None or _is_paired(prompt, index)
        else _as_json(each, first=index == 0)
        for index, each in enumerate(prompt)
    ]
    return _by_profile(sent, profile)


def json_messages(
    prompt: Prompt, tools: ToolSpecs = (), profile: EndpointProfile = _USUAL
) -> list[JsonObject]:
    """The prompt for JSON mode: calls are JSON text, results are user messages.

    The tools are listed at the end of the system message, since the endpoint hears of them nowhere
    else. Prose beside a call is left out: the answer's schema has no place for it.
    """
    prompt = _shown(prompt, profile)
    messages = [_as_json(message, first=index == 0) for index, message in enumerate(prompt)]
    if tools:
        listed = tools_as_text(tools)
        if messages and messages[0]["role"] == "system":
            messages[0]["content"] += f"\n\n{listed}"
        else:
            messages.insert(0, {"role": "system", "content": listed})
    return _by_profile(messages, profile)


def _shown(prompt: Prompt, profile: EndpointProfile) -> Prompt:
    """The prompt without pictures, where the model takes none."""
    if profile.pictures:
        return prompt
    return [
        replace(each, pictures=(), text=each.text + UNSEEN) if each.pictures else each
        for each in prompt
    ]


def call_as_json(call: FunctionCall) -> str:
    return _dumps({"tool": call.name, "arguments": dict(call.arguments)})


def _by_profile(messages: list[JsonObject], profile: EndpointProfile) -> list[JsonObject]:
    if profile.roles == "alternating":
        messages = _alternate(messages)
    if profile.system_role == "user":
        messages = _fold_system(messages)
    return _fill(profile, messages)


def _is_paired(prompt: Prompt, index: int) -> bool:
    step = 1 if prompt[index].role == "assistant" else -1
    call, other = prompt[index].call, prompt[index + step : index + step + 1]
    roles = {prompt[index].role, *(each.role for each in other)}
    return roles == {"assistant", "tool"} and _id_of(other[0].call) == _id_of(call)


def _id_of(call: FunctionCall | None) -> str | None:
    return call.id if call is not None else None


def _native(
    message: PromptMessage, fields_of: str | None, *, free: bool, first: bool
) -> JsonObject:
    call, fields = message.call, message.fields
    if fields is not None and fields.model != fields_of:
        fields = None
    if call is None or message.role not in {"assistant", "tool"}:
        plain = _plain(message, first=first)
        if fields is None or message.role != "assistant":
            return plain
        return with_message_fields(plain, fields)
    text = escape_control_tokens(message.text)
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": nine_characters(call.id), "content": text}
    arguments = escape_control_tokens(_dumps(dict(call.arguments)))
    function = {"name": call.name, "arguments": arguments}
    made = {"id": nine_characters(call.id), "type": "function", "function": function}
    beside = text if free else ""  # Mistral has text or calls in a message
    if fields is None:
        return {"role": "assistant", "content": beside, "tool_calls": [made]}
    calls = [with_call_fields(made, fields)]
    return with_message_fields(
        {"role": "assistant", "content": beside, "tool_calls": calls}, fields
    )


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
    text = escape_control_tokens(message.text)
    if message.pictures:
        return {"role": message.role, "content": [_text_part(text), *map(_part, message.pictures)]}
    return {"role": message.role, "content": text}


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _part(picture: Picture) -> JsonObject:
    data = b64encode(picture.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{picture.media_type};base64,{data}"}}


_dumps = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder at each call


def _alternate(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages in turns, as the strictest templates demand; each result must stand right after its call already.

    Those of Mistral and Gemma: the user begins and ends, user and assistant take turns (a tool's result counts as the
    user's turn), and nothing but an assistant's message follows a tool's result.
    """
    head = list(messages[:1]) if messages and messages[0]["role"] == "system" else []
    turns: list[JsonObject] = []
    for message in messages[len(head) :]:
        if message["role"] == "tool" or "tool_calls" in message or _says(message["content"]):
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
        return [_user(_join(system, rest[0]["content"])), *rest[1:]]
    return [_user(system), *rest]


def _add(turns: list[JsonObject], message: JsonObject) -> None:
    role, before = message["role"], turns[-1]["role"] if turns else None
    if before == role and _is_plain(message) and _is_plain(turns[-1]):
        turns[-1] = {"role": role, "content": _join(turns[-1]["content"], message["content"])}
        return
    if role == "user" and before == "tool":
        turns.append({"role": "assistant", "content": ACKNOWLEDGED})
    elif role == "assistant" and before in (None, "assistant"):
        turns.append(_user(CONTINUE))
    turns.append(message)


def _is_plain(message: JsonObject) -> bool:
    """Whether it is nothing but text: a call stands alone, and what has fields is sent as it came."""
    return message["role"] != "tool" and message.keys() == {"role", "content"}


_Content = str | list[JsonObject]


def _says(content: _Content) -> bool:
    return not isinstance(content, str) or bool(content.strip())


def _join(first: _Content, then: _Content) -> _Content:
    if isinstance(first, str) and isinstance(then, str):
        return BETWEEN.join(filter(None, (first, then)))
    parts = [[_text_part(each)] if isinstance(each, str) else each for each in (first, then)]
    return [part for each in parts for part in each if part.get("text") != ""]


def _user(text: _Content) -> JsonObject:
    return {"role": "user", "content": text}


def _fill(profile: EndpointProfile, messages: list[JsonObject]) -> list[JsonObject]:
    """The messages, with a stand-in for what the endpoint wants in each of the model's, or beside each call.

    Where text beside a call is refused, there is none.
    """
    if not profile.text_beside_calls:
        for message in messages:
            if "tool_calls" in message:
                message["content"] = ""
    if profile.missing_fields == "left_out":
        return messages
    filler = _FILLERS[profile.missing_fields]
    spoken = [message for message in messages if message["role"] == "assistant"]
    if profile.missing_fields == "reasoning_content":
        wanting = spoken
    else:
        wanting = [call for message in spoken for call in message.get("tool_calls", ())]
    for each in wanting:
        for name, value in filler.items():
            each.setdefault(name, value)
    return messages
