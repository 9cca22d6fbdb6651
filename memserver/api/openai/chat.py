"""Chat completions: one answer of an agent, whole or as chunks."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from memserver.agent.events import End, PausedTurn
from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.api.event_stream import EventStream, event_data
from memserver.api.hang_up import HangUpDep
from memserver.api.json_body import Router
from memserver.api.openai.addressing import HeadersDep, find_addressed
from memserver.api.openai.asides import Aside, answer_aside, aside_pieces, is_remembered, no_turn
from memserver.api.openai.client_tools import (
    arguments_of,
    function_call,
    refuse_without_memory,
    usage_of,
)
from memserver.api.openai.errors import RESPONSES, turn_failed
from memserver.api.openai.requests import (
    CHAT_FIELDS,
    ChatRequest,
    chat_prompt,
    chat_transcript,
    check_chat,
    has_instructions,
)
from memserver.api.openai.turns import (
    Key,
    Posting,
    begin,
    finish_reason,
    finish_turn,
    start_pieces,
    start_turn,
    text_of,
    turn_id,
)
from memserver.messages import FunctionCall, JsonObject, TokenUsage
from memserver.storage.agents import AgentRow
from memserver.storage.inbox import TurnRow

router = Router(tags=["OpenAI's API"], responses=RESPONSES)

LENGTH_FIELDS = ("max_tokens", "max_completion_tokens")


class Extra(BaseModel):
    """What OpenAI's answers don't have: the turn, for the API's other routes, and what had no effect."""

    agent_id: str = Field(examples=["0198f1c2-7a3b-7c4d-8e5f-0123456789ab"])
    turn: int | None = Field(
        description="Null: there is none, and nothing of the request is remembered.", examples=[1]
    )
    unused: list[str] = Field(examples=[["temperature"]])
    stop_reason: str | None = Field(
        default=None,
        description="Why the turn ended, or requires_action: a call waits for an answer; null before.",
        examples=["message_sent"],
    )
    call_id: str | None = Field(default=None, description="Of the call that waits.")

    @classmethod
    def of(cls, turn: TurnRow, unused: list[str], *, instructions: bool) -> "Extra":
        more = ["system messages"] if instructions else []
        return cls(agent_id=str(turn.agent_id), turn=turn.turn, unused=[*unused, *more])

    @classmethod
    def of_aside(cls, agent: AgentRow, unused: list[str]) -> "Extra":
        return cls(agent_id=str(agent.id), turn=None, unused=unused)

    def at(self, end: End) -> "Extra":
        call = end.message.call if isinstance(end, PausedTurn) else None
        update = {"stop_reason": end.stop_reason, "call_id": call.call.id if call else None}
        return self.model_copy(update=update)


class CalledFunction(BaseModel):
    """A function of the client's, and its arguments as JSON text."""

    name: str = Field(examples=["get_weather"])
    arguments: str = Field(examples=['{"city": "Oslo"}'])


class CompletionCall(BaseModel):
    """A call that the client has to run. Its result comes in a message of the role `tool`, with this id."""

    id: str = Field(examples=["k3Xq9TbZ1"])
    type: Literal["function"] = "function"
    function: CalledFunction


class CompletionMessage(BaseModel):
    """What the agent said, or the one call that it waits for."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(examples=["Hello Ada!"])
    refusal: None = None
    tool_calls: list[CompletionCall] | None = None

    @classmethod
    def of(cls, text: str, call: FunctionCall | None) -> "CompletionMessage":
        if call is None:
            return cls(content=text)
        function = CalledFunction(name=call.name, arguments=arguments_of(call))
        return cls(content=text or None, tool_calls=[CompletionCall(id=call.id, function=function)])


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: CompletionMessage
    logprobs: None = None
    finish_reason: str = Field(examples=["stop"])


class PromptDetails(BaseModel):
    """Of the prompt's tokens."""

    cached_tokens: int = Field(examples=[1408])


class CompletionUsage(BaseModel):
    """Tokens of all the turn's steps, as the model's endpoint counted them."""

    prompt_tokens: int = Field(examples=[1520])
    completion_tokens: int = Field(examples=[41])
    total_tokens: int = Field(examples=[1561])
    prompt_tokens_details: PromptDetails

    @classmethod
    def of(cls, usage: TokenUsage) -> "CompletionUsage":
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details=PromptDetails(cached_tokens=usage.cached_tokens),
        )


class Completion(BaseModel):
    """A chat completion."""

    id: str = Field(examples=["chatcmpl-0198f1c27a3b7c4d8e5f0123456789ab_1"])
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(examples=[1770465600])
    model: str = Field(examples=["sam"])
    choices: list[Choice]
    usage: CompletionUsage
    memserver: Extra

    @classmethod
    def of(
        cls, place: tuple[TurnRow, int], model: str, text: str, ended: End, extra: Extra
    ) -> "Completion":
        turn, after = place
        message = CompletionMessage.of(text, function_call(ended, turn))
        return cls(
            id=turn_id("chatcmpl-", turn, after),
            created=int(turn.created_at.timestamp()),
            model=model,
            choices=[Choice(message=message, finish_reason=finish_reason(ended, turn))],
            usage=CompletionUsage.of(usage_of(ended, turn)),
            memserver=extra.at(ended),
        )


@router.post(
    "/chat/completions",
    response_model=Completion,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The agent's answer."}},
)
async def create_completion(
    request: ChatRequest,
    services: ServicesDep,
    tenant: TenantDep,
    headers: HeadersDep,
    hang_up: HangUpDep,
    key: Key = None,
) -> Response:
    """Say something to an agent, from a client of OpenAI's API.

    Tools that the client sends are its own to run: the answer is the call, with finish_reason tool_calls, and the turn
    continues with the request that has the result.

    The agent remembers the conversation, so of the messages it is given only what it has not read: what the
    user says after the last assistant message, and exchanges that another model answered.
    """
    check_chat(request)
    transcript = chat_transcript(request)
    fields = request.model_extra or {}
    addressed = await find_addressed(services, tenant, request.model, fields, headers)
    prompt = chat_prompt(request)
    brought = request.turn_request
    if not is_remembered(services, addressed, headers, prompt):
        refuse_without_memory(brought)
        most = fields.get("max_completion_tokens") or fields.get("max_tokens")
        coming = answer_aside(services, addressed.agent, prompt, most)
        return await _answer_aside(request, services.ping_seconds, addressed.agent, coming)
    posting = Posting(key, headers.repeated, headers.chat, headers.expires_at, brought)
    turn, after = await begin(services, tenant, addressed.agent, transcript, posting)
    instructions = has_instructions([each.role for each in request.messages])
    unused = request.unused((*CHAT_FIELDS, *addressed.used))
    extra = Extra.of(turn, unused, instructions=instructions)
    if request.stream:
        pieces = await start_turn(services, tenant, turn, after)
        options = request.stream_options
        counted = options is not None and options.include_usage is True
        chunks = _Chunks((turn, after), request.model, extra, counted=counted)
        return EventStream(
            chunks.of(pieces), services.ping_seconds, on_hang_up=hang_up.action(turn)
        )
    result = await hang_up.watched(turn, finish_turn(services, tenant, turn, after))
    text, place = text_of(result.messages), (turn, after)
    completion = Completion.of(place, request.model, text, result.ended, extra)
    return Response(completion.model_dump_json(), media_type="application/json")


async def _answer_aside(
    request: ChatRequest, ping_seconds: float, agent: AgentRow, coming: Awaitable[Aside]
) -> Response:
    extra = Extra.of_aside(agent, request.unused((*CHAT_FIELDS, *LENGTH_FIELDS)))
    place = (no_turn(), 0)
    if request.stream:
        options = request.stream_options
        counted = options is not None and options.include_usage is True
        chunks = _Chunks(place, request.model, extra, counted=counted)
        pieces = await start_pieces(aside_pieces(coming), place[0], ping_seconds)
        return EventStream(chunks.of(pieces), ping_seconds)
    aside = await coming
    completion = Completion.of(place, request.model, aside.text, aside.ended, extra)
    return Response(completion.model_dump_json(), media_type="application/json")


class _Chunks:
    def __init__(
        self, place: tuple[TurnRow, int], model: str, extra: Extra, *, counted: bool
    ) -> None:
        turn, after = place
        self._turn = turn
        self._counted = counted
        self._extra = extra
        self._head: JsonObject = {
            "id": turn_id("chatcmpl-", turn, after),
            "object": "chat.completion.chunk",
            "created": int(turn.created_at.timestamp()),
            "model": model,
            "memserver": extra.model_dump(),
        }

    async def of(self, pieces: AsyncIterator[str | End]) -> AsyncIterator[str]:
        yield self._chunk({"role": "assistant", "content": ""})
        async for piece in pieces:
            if isinstance(piece, str):
                yield self._chunk({"content": piece})
            elif piece.error is not None:
                yield frame(turn_failed(piece.error).body)
                return
            else:
                self._head["memserver"] = self._extra.at(piece).model_dump()
                for delta in self._calling(function_call(piece, self._turn)):
                    yield self._chunk({"tool_calls": [{"index": 0, **delta}]})
                yield self._chunk({}, finish_reason(piece, self._turn))
                if self._counted:
                    usage = CompletionUsage.of(usage_of(piece, self._turn)).model_dump()
                    yield frame({**self._head, "choices": [], "usage": usage})
        yield "data: [DONE]\n\n"

    def _calling(self, call: FunctionCall | None) -> Iterator[JsonObject]:
        if call is not None:
            named = {"name": call.name, "arguments": ""}
            yield {"id": call.id, "type": "function", "function": named}
            yield {"function": {"arguments": arguments_of(call)}}

    def _chunk(self, delta: JsonObject, reason: str | None = None) -> str:
        choice: dict[str, Any] = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": reason,
        }
        usage = {"usage": None} if self._counted else {}
        return frame({**self._head, "choices": [choice], **usage})


def frame(data: JsonObject) -> str:
    """One event without a name."""
    return f"data: {event_data(data)}\n\n"
