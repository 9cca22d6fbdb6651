"""Responses, the newer of OpenAI's two APIs: one answer of an agent, whole or as events."""

from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from memserver.agent.events import End, EndedTurn, PausedTurn
from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.api.event_stream import EventStream, event_data
from memserver.api.json_body import Router
from memserver.api.openai.chat import Extra
from memserver.api.openai.errors import RESPONSES, no_previous_response
from memserver.api.openai.requests import (
    RESPONSE_FIELDS,
    ResponseRequest,
    check_response,
    has_instructions,
    response_transcript,
)
from memserver.api.openai.turns import (
    Key,
    Repetitions,
    begin,
    find_agent,
    find_turn,
    finish_turn,
    start_turn,
    text_of,
    turn_id,
)
from memserver.errors import InvalidInput, NotFound
from memserver.messages import JsonObject, TokenUsage
from memserver.storage import recall
from memserver.storage.agents import AgentRow
from memserver.storage.inbox import PLACES_PER_TURN, TurnRow
from memserver.wiring.services import Services

router = Router(tags=["OpenAI's API"], responses=RESPONSES)

Status = Literal["completed", "failed", "in_progress", "incomplete"]


class OutputText(BaseModel):
    """A part of a message."""

    type: Literal["output_text"] = "output_text"
    text: str = Field(examples=["Hello Ada!"])
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputMessage(BaseModel):
    """What the agent said."""

    type: Literal["message"] = "message"
    id: str = Field(examples=["msg_0198f1c27a3b7c4d8e5f0123456789ab_1"])
    status: Literal["completed", "in_progress"]
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class CachedTokens(BaseModel):
    """Of the input's tokens."""

    cached_tokens: int = Field(examples=[1408])
    cache_write_tokens: int = 0


class ReasoningTokens(BaseModel):
    """Of the output's tokens; endpoints don't tell them apart."""

    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    """Tokens of all the turn's steps, as the model's endpoint counted them."""

    input_tokens: int = Field(examples=[1520])
    input_tokens_details: CachedTokens
    output_tokens: int = Field(examples=[41])
    output_tokens_details: ReasoningTokens = ReasoningTokens()
    total_tokens: int = Field(examples=[1561])

    @classmethod
    def of(cls, usage: TokenUsage) -> "ResponseUsage":
        return cls(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=CachedTokens(cached_tokens=usage.cached_tokens),
            output_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        )


class ResponseError(BaseModel):
    """Why the turn failed."""

    code: str = Field(examples=["server_error"])
    message: str = Field(examples=["The model gave no answer in time."])


class IncompleteDetails(BaseModel):
    """Why the answer is cut."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseObject(BaseModel):
    """A response."""

    id: str = Field(examples=["resp_0198f1c27a3b7c4d8e5f0123456789ab_1"])
    object: Literal["response"] = "response"
    created_at: int = Field(examples=[1770465600])
    status: Status
    model: str = Field(examples=["sam"])
    output: list[OutputMessage]
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: Literal[False] = False
    previous_response_id: str | None = None
    store: Literal[True] = True
    text: dict[str, Any] = {"format": {"type": "text"}}
    tool_choice: Literal["none"] = "none"
    tools: list[Any] = []
    usage: ResponseUsage | None = None
    memserver: Extra


@router.post(
    "/responses",
    response_model=ResponseObject,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The agent's answer."}},
)
async def create_response(
    request: ResponseRequest,
    services: ServicesDep,
    tenant: TenantDep,
    key: Key = None,
    repetitions: Repetitions = 0,
) -> Response:
    """Say something to an agent, from a client of OpenAI's API.

    The input may be a text or a whole conversation, of which the agent is given what it has not read.
    """
    check_response(request)
    transcript = response_transcript(request)
    agent = await _agent(services, tenant, request)
    turn = await begin(services, tenant, agent, transcript, key=key, repeated=repetitions > 0)
    answer = _Answer(request.model or agent.name, turn, _extra(turn, request))
    answer.previous = request.previous_response_id
    if request.stream:
        pieces = await start_turn(services, tenant, turn)
        return EventStream(_Writer(answer).of(pieces), services.ping_seconds)
    result = await finish_turn(services, tenant, turn)
    whole = answer.ended(text_of(result.messages), result.ended)
    return Response(whole.model_dump_json(), media_type="application/json")


@router.get("/responses/{response_id}")
async def get_response(
    response_id: str, services: ServicesDep, tenant: TenantDep
) -> ResponseObject:
    """Get a response again, or see how it stands."""
    agent, turn = await find_turn(services, tenant, response_id)
    answer = _Answer(agent.name, turn, Extra.of(turn, [], instructions=False))
    async with services.database.tenant(tenant) as tx:
        messages = await recall.queue(
            tx, agent.id, turn.first_position, turn.first_position + PLACES_PER_TURN
        )
    if turn.state == "requires_action" and messages:
        paused = PausedTurn(turn.turn, turn.steps, turn.usage, messages[-1])
        return answer.ended(text_of(messages), paused)
    if not turn.ended:
        return answer.begun()
    stop = turn.stop_reason or ""
    ended = EndedTurn(turn.turn, turn.steps, stop, turn.usage, turn.error)
    return answer.ended(text_of(messages), ended)


async def _agent(services: Services, tenant: str, request: ResponseRequest) -> AgentRow:
    previous = None
    if request.previous_response_id is not None:
        try:
            previous, _ = await find_turn(services, tenant, request.previous_response_id)
        except NotFound as error:
            raise no_previous_response(request.previous_response_id) from error
    if request.model is None:
        if previous is None:
            raise InvalidInput("model: the agent's name or id is wanted.")
        return previous
    agent = await find_agent(services, tenant, request.model)
    if previous is not None and previous.id != agent.id:
        assert request.previous_response_id is not None
        raise no_previous_response(request.previous_response_id)
    return agent


def _extra(turn: TurnRow, request: ResponseRequest) -> Extra:
    roles = [] if isinstance(request.input, str) else [each.get("role") for each in request.input]
    instructions = has_instructions(roles)
    return Extra.of(turn, request.unused(RESPONSE_FIELDS), instructions=instructions)


class _Answer:
    def __init__(self, model: str, turn: TurnRow, extra: Extra) -> None:
        self._model = model
        self._turn = turn
        self._extra = extra
        self.previous: str | None = None

    @property
    def message_id(self) -> str:
        return turn_id("msg_", self._turn)

    def begun(self) -> ResponseObject:
        """Before there is an answer."""
        return self._whole("in_progress", [])

    def ended(self, text: str, ended: End) -> ResponseObject:
        self._extra = self._extra.at(ended)
        output = [self.message(text)] if text else []
        usage = ResponseUsage.of(ended.usage)
        if ended.error is not None:
            error = ResponseError(code="server_error", message=ended.error["message"])
            return self._whole("failed", output, error=error, usage=usage)
        if ended.stop_reason == "max_steps":
            cut = IncompleteDetails()
            return self._whole("incomplete", output, incomplete_details=cut, usage=usage)
        return self._whole("completed", output, usage=usage)

    def message(self, text: str) -> OutputMessage:
        content = [OutputText(text=text)]
        return OutputMessage(id=self.message_id, status="completed", content=content)

    def _whole(self, status: Status, output: list[OutputMessage], **more: Any) -> ResponseObject:  # noqa: ANN401
        return ResponseObject(
            id=turn_id("resp_", self._turn),
            created_at=int(self._turn.created_at.timestamp()),
            status=status,
            model=self._model,
            output=output,
            previous_response_id=self.previous,
            memserver=self._extra,
            **more,
        )


class _Writer:
    """Writes the events of one response; its one message is begun with its first text."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        self._number = -1
        self._text = ""

    async def of(self, pieces: AsyncIterator[str | End]) -> AsyncIterator[str]:
        begun = self._answer.begun().model_dump()
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        async for piece in pieces:
            for event in self._end(piece) if isinstance(piece, End) else self._add(piece):
                yield event

    def _add(self, text: str) -> list[str]:
        opening = [] if self._text else self._open()
        self._text += text
        return [
            *opening,
            self._event("response.output_text.delta", **self._place, delta=text, logprobs=[]),
        ]

    def _end(self, ended: End) -> list[str]:
        """The end, whichever it is."""
        closing = self._close() if self._text else []
        whole = self._answer.ended(self._text, ended)
        return [*closing, self._event(f"response.{whole.status}", response=whole.model_dump())]

    @property
    def _place(self) -> JsonObject:
        return {"item_id": self._answer.message_id, "output_index": 0, "content_index": 0}

    def _open(self) -> list[str]:
        message = self._answer.message("").model_copy(
            update={"status": "in_progress", "content": []}
        )
        part = OutputText(text="").model_dump()
        return [
            self._event("response.output_item.added", output_index=0, item=message.model_dump()),
            self._event("response.content_part.added", **self._place, part=part),
        ]

    def _close(self) -> list[str]:
        text, place = self._text, self._place
        part = OutputText(text=text).model_dump()
        item = self._answer.message(text).model_dump()
        return [
            self._event("response.output_text.done", **place, text=text, logprobs=[]),
            self._event("response.content_part.done", **place, part=part),
            self._event("response.output_item.done", output_index=0, item=item),
        ]

    def _event(self, kind: str, **data: Any) -> str:  # noqa: ANN401 - JSON
        self._number += 1
        whole = {"type": kind, "sequence_number": self._number, **data}
        return f"event: {kind}\ndata: {event_data(whole)}\n\n"
