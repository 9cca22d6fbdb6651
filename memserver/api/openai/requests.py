"""What OpenAI's clients send, as far as it concerns an agent; and what is refused of it.

What an agent doesn't do and can be left out without breaking a promise is left out: a temperature, a limit
of tokens, system messages. What would break one is refused: several answers, sound, a background.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from memserver.agent.transcript import Said
from memserver.api.openai.client_tools import read_form, read_tools
from memserver.errors import InvalidInput, PictureRefused
from memserver.memory.pictures import marker
from memserver.messages import JsonObject, PromptMessage
from memserver.text import clean
from memserver.tools.turn_request import TurnRequest

Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
Text = str | Objects | None
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_PICTURE_PARTS = ("image_url", "input_image")
_INSTRUCTIONS = ("system", "developer")
_SPEAKERS = ("user", "assistant", *_INSTRUCTIONS, "tool", "function")
_ROLES = {"function_call": "assistant", "function_call_output": "tool"}
"""Whose the items of a response's input are that are no messages."""
_TOOLS = "Functions that the client runs; the agent may call them in this turn beside its own."
_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_CHAT_TOOL = {"type": "function", "function": {k: v for k, v in _TOOL.items() if k != "type"}}


class OpenAIRequest(BaseModel):
    """Base: fields that are not known here are taken and left out."""

    model_config = ConfigDict(extra="allow")

    def unused(self, used: Sequence[str]) -> list[str]:
        return sorted(name for name in self.model_fields_set if name not in used)


class StreamOptions(BaseModel):
    """Of a stream."""

    model_config = ConfigDict(extra="allow")
    include_usage: bool | None = None


class ChatMessage(BaseModel):
    """A message of a chat; parts of its content may be of any kind, but only text is read."""

    model_config = ConfigDict(extra="allow")
    role: str = Field(examples=["user"])
    content: Text = Field(default=None, examples=["Hi, I am Ada."])


class ChatRequest(OpenAIRequest):
    """A request for a chat completion."""

    model: str = Field(description="An agent's name or id.", examples=["sam"])
    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(
        min_length=1,
        max_length=20_000,
        description="The conversation; the agent reads what it has not read yet.",
        examples=[[{"role": "user", "content": "Hi, I am Ada."}]],
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Objects | None = Field(default=None, description=_TOOLS, examples=[[_CHAT_TOOL]])
    tool_choice: str | JsonObject | None = Field(default=None, examples=["auto"])
    response_format: JsonObject | None = Field(
        default=None,
        description="text, json_object, or json_schema, to which the answer is held.",
        examples=[{"type": "json_object"}],
    )

    @property
    def turn_request(self) -> TurnRequest:
        """What it brings to its turn. Raises InvalidInput."""
        form = read_form(self.response_format, "response_format")
        request = replace(read_tools(self.tools, self.tool_choice), form=form)
        items = [(each.role, each.model_extra or {}, each.content) for each in self.messages]
        return _with_results(
            request, [(role, more.get("tool_call_id"), text) for role, more, text in items]
        )


class ResponseRequest(OpenAIRequest):
    """A request for a response."""

    model: str | None = Field(
        default=None,
        description="An agent's name or id; may be left out with previous_response_id.",
        examples=["sam"],
    )
    input: str | Objects = Field(
        description="What the user says, or the conversation.", examples=["Hi, I am Ada."]
    )
    previous_response_id: str | None = None
    stream: bool | None = None
    tools: Objects | None = Field(default=None, description=_TOOLS, examples=[[_TOOL]])
    tool_choice: str | JsonObject | None = Field(default=None, examples=["auto"])
    text: JsonObject | None = Field(
        default=None,
        description="Its format: text, json_object, or json_schema, to which the answer is held.",
        examples=[{"format": {"type": "json_object"}}],
    )

    @property
    def turn_request(self) -> TurnRequest:
        """What it brings to its turn. Raises InvalidInput."""
        form = read_form((self.text or {}).get("format"), "text.format")
        tools = read_tools(self.tools, self.tool_choice)
        return _with_results(
            replace(tools, form=form, form_field="text.format"),
            [(_role_of(each), each.get("call_id"), each.get("output")) for each in self.items],
        )

    @property
    def items(self) -> list[JsonObject]:
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return self.input


_TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls")
CHAT_FIELDS = (
    *("model", "messages", "stream", "stream_options", "n", *_TOOL_FIELDS, "response_format"),
)
RESPONSE_FIELDS = ("model", "input", "previous_response_id", "stream", *_TOOL_FIELDS, "text")


def check_chat(request: ChatRequest) -> None:
    """Refuse what an agent can't do. Raises InvalidInput."""
    extra = request.model_extra or {}
    _check_roles(enumerate(each.role for each in request.messages), "messages")
    _check_end([each.role for each in request.messages], "messages")
    for name, now in (("functions", "tools"), ("function_call", "tool_choice")):
        if extra.get(name):
            raise InvalidInput(
                f"{name}: this older form is not taken.", hint=f"Send {now} instead."
            )
    if extra.get("n") not in (None, 1):
        raise InvalidInput("n: an agent gives one answer.", hint="Leave n out.")
    if "audio" in str(extra.get("modalities")):
        raise InvalidInput("modalities: an agent answers in words.", hint="Leave audio out.")
    for name in ("logprobs", "top_logprobs", "audio"):
        if extra.get(name):
            raise InvalidInput(f"{name}: an agent doesn't give this.", hint=f"Leave {name} out.")


def check_response(request: ResponseRequest) -> None:
    """Refuse what an agent can't do. Raises InvalidInput."""
    extra = request.model_extra or {}
    said = [
        each for each in enumerate(request.items) if each[1].get("type", "message") == "message"
    ]
    _check_roles(((number, item.get("role")) for number, item in said), "input")
    _check_end([_role_of(item) for item in request.items], "input")
    for name in ("background", "conversation", "prompt"):
        if extra.get(name):
            raise InvalidInput(f"{name}: it is not supported here.", hint=f"Leave {name} out.")


def chat_transcript(request: ChatRequest) -> list[Said]:
    """What was said, of a chat. Raises InvalidInput."""
    return list(
        _transcript(
            [(each.role, each.content, f"messages[{n}]") for n, each in enumerate(request.messages)]
        )
    )


def response_transcript(request: ResponseRequest) -> list[Said]:
    """What was said, of a response's input. Raises InvalidInput."""
    return list(
        _transcript(
            [
                (_role_of(item), item.get("content"), f"input[{n}]")
                for n, item in enumerate(request.items)
                if item.get("type", "message") in ("message", *_ROLES)
            ]
        )
    )


def chat_prompt(request: ChatRequest) -> list[PromptMessage]:
    """All that a chat's messages say, as a model without memory is asked."""
    return _prompt(
        [(each.role, each.content, f"messages[{n}]") for n, each in enumerate(request.messages)]
    )


def response_prompt(request: ResponseRequest) -> list[PromptMessage]:
    """All that a response's instructions and input say, as a model without memory is asked."""
    instructions = (request.model_extra or {}).get("instructions")
    first = [{"role": "system", "content": instructions}] if instructions else []
    return _prompt(
        [
            (str(item.get("role", "")), item.get("content"), f"input[{n}]")
            for n, item in enumerate([*first, *request.items])
        ]
    )


def _prompt(messages: Sequence[tuple[str, Any, str]]) -> list[PromptMessage]:
    said: list[PromptMessage] = []
    for role, content, place in messages:
        text = clean(_text(content, place, strict=False))
        if role in _INSTRUCTIONS:
            said.append(PromptMessage("system", text))
        elif role in ("user", "assistant"):
            said.append(PromptMessage("user" if role == "user" else "assistant", text))
    return said


def has_instructions(roles: Sequence[object]) -> bool:
    return any(role in _INSTRUCTIONS for role in roles)


def _transcript(messages: Sequence[tuple[str, Any, str]]) -> Iterator[Said]:
    """Of the user's and the assistant's messages; those after the last answer must be text and pictures."""
    answered = max((n for n, (role, *_) in enumerate(messages) if role == "assistant"), default=-1)
    for number, (role, content, place) in enumerate(messages):
        if role == "assistant":
            yield Said("assistant", _text(content, place, strict=False))
        elif role == "user":
            new = number > answered
            pictures = _pictures(content, place) if new else ()
            yield Said("user", _text(content, place, strict=new), pictures)


def _text(content: object, place: str, *, strict: bool) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidInput(f"{place}.content: a text or a list of parts is wanted.")
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get(_TEXT_PARTS.get(str(kind), "")) if isinstance(part, Mapping) else None
        if kind in _PICTURE_PARTS:
            text = marker()
        if isinstance(text, str):
            texts.append(text)
        elif strict:
            raise InvalidInput(
                f"{place}.content[{number}]: an agent reads text and pictures, not {kind or 'this'}.",
                hint="Send what it says as text.",
            )
    return "\n".join(texts)


def _pictures(content: object, place: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(content, list):
        return ()
    urls = []
    for number, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") not in _PICTURE_PARTS:
            continue
        found = part.get("image_url")
        url = found.get("url") if isinstance(found, Mapping) else found
        if not isinstance(url, str):
            raise PictureRefused(
                f"{place}.content[{number}]: a picture is wanted as image_url, with a data: URL."
            )
        urls.append((f"{place}.content[{number}]", url))
    return tuple(urls)


def _role_of(item: JsonObject) -> str:
    return _ROLES.get(str(item.get("type")), str(item.get("role", "")))


def _with_results(request: TurnRequest, items: Sequence[tuple[str, object, object]]) -> TurnRequest:
    """The request with the results that stand after the last thing that the assistant did.

    Of the conversation `items` have the role; and of a result the call's id, and the content.
    """
    last = max((n for n, (role, *_) in enumerate(items) if role == "assistant"), default=-1)
    results = {}
    for role, call_id, content in items[last + 1 :]:
        if role == "tool":
            parts = [content] if isinstance(content, dict) else content
            results[str(call_id)] = _text(parts, "the tool's result", strict=True)
    ends = bool(items) and items[-1][0] == "tool"
    return replace(request, results=results, ends_with_result=ends)


def _check_roles(roles: Iterable[tuple[int, object]], place: str) -> None:
    """Check that nothing is said by somebody unknown, and so would be lost. Raises InvalidInput."""
    for number, role in roles:
        if role not in _SPEAKERS:
            raise InvalidInput(
                f"{place}[{number}].role: {str(role)[:50]!r} is no role.",
                hint=f"The roles are {', '.join(_SPEAKERS)}.",
            )


def _check_end(roles: Sequence[object], place: str) -> None:
    """Check that the last thing but instructions is for the agent to answer. Raises InvalidInput."""
    said = [role for role in roles if role not in _INSTRUCTIONS]
    if not roles:
        raise InvalidInput(f"{place}: there is nothing in it.", hint="Say something as the user.")
    if not said:
        raise InvalidInput(
            f"{place}: there are instructions only, and an agent has its own.",
            hint="Say something as the user; the agent's instructions are its system prompt and working context.",
        )
    if said[-1] == "assistant":
        raise InvalidInput(
            f"{place}: the last message is the assistant's, and an agent doesn't continue one.",
            hint="End with what the user says, or with the result of a tool.",
        )
