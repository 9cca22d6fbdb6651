"""What OpenAI's clients send, as far as it concerns an agent; and what is refused of it.

What an agent doesn't do and can be left out without breaking a promise is left out: a temperature, a limit
of tokens, system messages. What would break one is refused: tools of the client's, a format of the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from memserver.agent.transcript import Said
from memserver.errors import InvalidInput
from memserver.messages import JsonObject, PromptMessage
from memserver.text import clean

Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
Text = str | Objects | None
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_INSTRUCTIONS = ("system", "developer")
_NO_TOOLS = "tools: an agent has its own tools and can't use the client's."
_TOOLS_HINT = "Leave tools out of the request, or turn function calling off in the client."


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


CHAT_FIELDS = ("model", "messages", "stream", "stream_options", "n", "tools", "tool_choice")
RESPONSE_FIELDS = ("model", "input", "previous_response_id", "stream", "tools", "tool_choice")


def check_chat(request: ChatRequest) -> None:
    """Refuse what an agent can't do. Raises InvalidInput."""
    extra = request.model_extra or {}
    _check_tools(extra)
    if extra.get("functions"):
        raise InvalidInput(_NO_TOOLS.replace("tools:", "functions:"), hint=_TOOLS_HINT)
    if extra.get("n") not in (None, 1):
        raise InvalidInput("n: an agent gives one answer.", hint="Leave n out.")
    _check_format("response_format", extra.get("response_format"))
    for name in ("logprobs", "top_logprobs", "audio"):
        if extra.get(name):
            raise InvalidInput(f"{name}: an agent doesn't give this.", hint=f"Leave {name} out.")


def check_response(request: ResponseRequest) -> None:
    """Refuse what an agent can't do. Raises InvalidInput."""
    extra = request.model_extra or {}
    _check_tools(extra)
    text = extra.get("text")
    _check_format("text.format", text.get("format") if isinstance(text, dict) else None)
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
    if isinstance(request.input, str):
        return [Said("user", request.input)]
    return list(
        _transcript(
            [
                (str(item.get("role", "")), item.get("content"), f"input[{n}]")
                for n, item in enumerate(request.input)
                if item.get("type", "message") == "message"
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
    items = [{"role": "user", "content": request.input}] if isinstance(request.input, str) else []
    instructions = (request.model_extra or {}).get("instructions")
    first = [{"role": "system", "content": instructions}] if instructions else []
    return _prompt(
        [
            (str(item.get("role", "")), item.get("content"), f"input[{n}]")
            for n, item in enumerate([*first, *(items or request.input)])
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
    """Of the user's and the assistant's messages; those after the last answer must be text alone."""
    answered = max((n for n, (role, *_) in enumerate(messages) if role == "assistant"), default=-1)
    for number, (role, content, place) in enumerate(messages):
        if role == "assistant":
            yield Said("assistant", _text(content, place, strict=False))
        elif role == "user":
            yield Said("user", _text(content, place, strict=number > answered))


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
        if isinstance(text, str):
            texts.append(text)
        elif strict:
            raise InvalidInput(
                f"{place}.content[{number}]: an agent reads text only, not {kind or 'this'}.",
                hint="Send what it says as text.",
            )
    return "\n".join(texts)


def _check_tools(extra: JsonObject) -> None:
    if extra.get("tools") and extra.get("tool_choice") != "none":
        raise InvalidInput(_NO_TOOLS, hint=_TOOLS_HINT)


def _check_format(name: str, wanted: object) -> None:
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in (None, "text"):
        raise InvalidInput(
            f"{name}: an agent answers in text; it can't be held to {kind}.",
            hint=f"Leave {name} out.",
        )
