"""Chat completions: one answer of an agent, whole or as chunks."""

from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from memserver.agent.events import End, PausedTurn
from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.api.event_stream import EventStream, event_data
from memserver.api.json_body import Router
from memserver.api.openai.errors import RESPONSES, turn_failed
from memserver.api.openai.requests import (
    CHAT_FIELDS,
    ChatRequest,
    chat_transcript,
    check_chat,
    has_instructions,
)
from memserver.api.openai.turns import (
    Key,
    Repetitions,
    begin,
    find_agent,
    finish_reason,
    finish_turn,
    start_turn,
    text_of,
    turn_id,
)
from memserver.messages import JsonObject, TokenUsage
from memserver.storage.inbox import TurnRow

router = Router(tags=["OpenAI's API"], responses=RESPONSES)


class Extra(BaseModel):
    """What OpenAI's answers don't have: the turn, for the API's other routes, and what had no effect."""

    agent_id: str = Field(examples=["0198f1c2-7a3b-7c4d-8e5f-0123456789ab"])
    turn: int = Field(examples=[1])
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

    def at(self, end: End) -> "Extra":
        call = end.message.call if isinstance(end, PausedTurn) else None
        update = {"stop_reason": end.stop_reason, "call_id": call.call.id if call else None}
        return self.model_copy(update=update)


class CompletionMessage(BaseModel):
    """What the agent said."""

    role: Literal["assistant"] = "assistant"
    content: str = Field(examples=["Hello Ada!"])
    refusal: None = None


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


@router.post(
    "/chat/completions",
    response_model=Completion,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The agent's answer."}},
)
async def create_completion(
    request: ChatRequest,
    services: ServicesDep,
    tenant: TenantDep,
    key: Key = None,
    repetitions: Repetitions = 0,
) -> Response:
    """Say something to an agent, from a client of OpenAI's API.

    The agent remembers the conversation, so of the messages it is given only what it has not read: what the
    user says after the last assistant message, and exchanges that another model answered.
    """
    check_chat(request)
    transcript = chat_transcript(request)
    agent = await find_agent(services, tenant, request.model)
    turn = await begin(services, tenant, agent, transcript, key=key, repeated=repetitions > 0)
    instructions = has_instructions([each.role for each in request.messages])
    extra = Extra.of(turn, request.unused(CHAT_FIELDS), instructions=instructions)
    if request.stream:
        pieces = await start_turn(services, tenant, turn)
        options = request.stream_options
        counted = options is not None and options.include_usage is True
        chunks = _Chunks(turn, request.model, extra, counted=counted)
        return EventStream(chunks.of(pieces), services.ping_seconds)
    result = await finish_turn(services, tenant, turn)
    message = CompletionMessage(content=text_of(result.messages))
    completion = Completion(
        id=turn_id("chatcmpl-", turn),
        created=int(turn.created_at.timestamp()),
        model=request.model,
        choices=[Choice(message=message, finish_reason=finish_reason(result.ended))],
        usage=CompletionUsage.of(result.ended.usage),
        memserver=extra.at(result.ended),
    )
    return Response(completion.model_dump_json(), media_type="application/json")


class _Chunks:
    def __init__(self, turn: TurnRow, model: str, extra: Extra, *, counted: bool) -> None:
        self._counted = counted
        self._extra = extra
        self._head: JsonObject = {
            "id": turn_id("chatcmpl-", turn),
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
                yield self._chunk({}, finish_reason(piece))
                if self._counted:
                    usage = CompletionUsage.of(piece.usage).model_dump()
                    yield frame({**self._head, "choices": [], "usage": usage})
        yield "data: [DONE]\n\n"

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
