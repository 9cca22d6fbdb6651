"""Responses, the newer of OpenAI's two APIs: one answer of an agent, whole or as events."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Response

from memserver.agent.call_answers import is_of_request
from memserver.agent.events import End, EndedTurn, PausedTurn
from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.api.event_stream import EventStream, event_data
from memserver.api.hang_up import HangUpDep
from memserver.api.json_body import Router
from memserver.api.openai.addressing import Addressed, Headers, HeadersDep, find_addressed
from memserver.api.openai.asides import Aside, answer_aside, aside_pieces, is_remembered, no_turn
from memserver.api.openai.chat import Extra
from memserver.api.openai.client_tools import function_call, refuse_without_memory, usage_of
from memserver.api.openai.errors import RESPONSES, no_previous_response
from memserver.api.openai.requests import (
    RESPONSE_FIELDS,
    ResponseRequest,
    check_response,
    has_instructions,
    response_prompt,
    response_transcript,
)
from memserver.api.openai.response_object import (
    IncompleteDetails,
    OutputCall,
    OutputMessage,
    OutputText,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    Status,
)
from memserver.api.openai.turns import (
    Key,
    Posting,
    begin,
    find_turn,
    finish_turn,
    start_pieces,
    start_turn,
    text_of,
    turn_id,
)
from memserver.errors import InvalidInput, NotFound
from memserver.messages import JsonObject
from memserver.storage import recall
from memserver.storage.agents import AgentRow
from memserver.storage.inbox import PLACES_PER_TURN, TurnRow
from memserver.wiring.services import Services

router = Router(tags=["OpenAI's API"], responses=RESPONSES)


@router.post(
    "/responses",
    response_model=ResponseObject,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The agent's answer."}},
)
async def create_response(
    request: ResponseRequest,
    services: ServicesDep,
    tenant: TenantDep,
    headers: HeadersDep,
    hang_up: HangUpDep,
    key: Key = None,
) -> Response:
    """Say something to an agent, from a client of OpenAI's API.

    The input may be a text or a whole conversation, of which the agent is given what it has not read.
    """
    check_response(request)
    transcript = response_transcript(request)
    addressed, answered = await _addressed(services, tenant, request, headers)
    agent, brought = addressed.agent, request.turn_request
    if not is_remembered(services, addressed, headers, prompt := response_prompt(request)):
        refuse_without_memory(brought)
        most = (request.model_extra or {}).get("max_output_tokens")
        coming = answer_aside(services, agent, prompt, most)
        return await _answer_aside(request, services.ping_seconds, agent, coming)
    chat = headers.chat if answered is None else replace(headers.chat, after=answered)
    posting = Posting(key, headers.repeated, chat, headers.expires_at, brought)
    turn, after = await begin(services, tenant, agent, transcript, posting)
    answer = _Answer(
        request.model or agent.name, turn, after, _extra(turn, request, addressed.used)
    )
    answer.echo = {"previous_response_id": request.previous_response_id}
    if request.tools:
        choice = request.tool_choice or "auto"
        answer.echo |= {"tools": request.tools, "tool_choice": choice}
    if request.text:
        answer.echo["text"] = request.text
    if request.stream:
        pieces = await start_turn(services, tenant, turn, after)
        frames = _Writer(answer).of(pieces)
        return EventStream(frames, services.ping_seconds, on_hang_up=hang_up.action(turn))
    result = await hang_up.watched(turn, finish_turn(services, tenant, turn, after))
    whole = answer.ended(text_of(result.messages), result.ended)
    return Response(whole.model_dump_json(), media_type="application/json")


@router.get("/responses/{response_id}")
async def get_response(
    response_id: str, services: ServicesDep, tenant: TenantDep
) -> ResponseObject:
    """Get a response again, or see how it stands."""
    agent, turn, after = await find_turn(services, tenant, response_id)
    answer = _Answer(agent.name, turn, after, Extra.of(turn, [], instructions=False))
    start, end = after + 1 if after else turn.first_position, turn.first_position + PLACES_PER_TURN
    async with services.database.tenant(tenant) as tx:
        messages = await recall.queue(tx, agent.id, start, end)
    for number, message in enumerate(messages):
        if is_of_request(message, turn):
            paused = PausedTurn(turn.turn, turn.steps, turn.usage, message)
            return answer.ended(text_of(messages[:number]), paused)
    if turn.state == "requires_action" and messages:
        paused = PausedTurn(turn.turn, turn.steps, turn.usage, messages[-1])
        return answer.ended(text_of(messages), paused)
    if not turn.ended:
        return answer.begun()
    stop = turn.stop_reason or ""
    ended = EndedTurn(turn.turn, turn.steps, stop, turn.usage, turn.error)
    return answer.ended(text_of(messages), ended)


async def _answer_aside(
    request: ResponseRequest, ping_seconds: float, agent: AgentRow, coming: Awaitable[Aside]
) -> Response:
    extra = Extra.of_aside(agent, request.unused((*RESPONSE_FIELDS, "max_output_tokens")))
    turn = no_turn()
    answer = _Answer(request.model or agent.name, turn, 0, extra)
    if request.stream:
        pieces = await start_pieces(aside_pieces(coming), turn, ping_seconds)
        return EventStream(_Writer(answer).of(pieces), ping_seconds)
    aside = await coming
    whole = answer.ended(aside.text, aside.ended)
    return Response(whole.model_dump_json(), media_type="application/json")


async def _addressed(
    services: Services, tenant: str, request: ResponseRequest, headers: Headers
) -> tuple[Addressed, int | None]:
    """The agent that a request is for, and up to where its history has the response that it continues."""
    previous = after = None
    if request.previous_response_id is not None:
        try:
            previous, turn, _ = await find_turn(services, tenant, request.previous_response_id)
            after = turn.first_position + PLACES_PER_TURN - 1
        except NotFound as error:
            raise no_previous_response(request.previous_response_id) from error
    if request.model is None:
        if previous is None:
            raise InvalidInput("model: the agent's name or id is wanted.")
        return Addressed(previous), after
    fields = request.model_extra or {}
    addressed = await find_addressed(services, tenant, request.model, fields, headers)
    if previous is not None and previous.id != addressed.agent.id:
        assert request.previous_response_id is not None
        raise no_previous_response(request.previous_response_id)
    return addressed, after


def _extra(turn: TurnRow, request: ResponseRequest, used: Sequence[str]) -> Extra:
    roles = [] if isinstance(request.input, str) else [each.get("role") for each in request.input]
    instructions = has_instructions(roles)
    unused = request.unused((*RESPONSE_FIELDS, *used))
    return Extra.of(turn, unused, instructions=instructions)


class _Answer:
    def __init__(self, model: str, turn: TurnRow, after: int, extra: Extra) -> None:
        self._model = model
        self._turn = turn
        self._after = after
        self._extra = extra
        self.echo: JsonObject = {}

    @property
    def message_id(self) -> str:
        return turn_id("msg_", self._turn, self._after)

    def begun(self) -> ResponseObject:
        """Before there is an answer."""
        return self._whole("in_progress", [])

    def ended(self, text: str, ended: End) -> ResponseObject:
        self._extra = self._extra.at(ended)
        output: list[OutputMessage | OutputCall] = [self.message(text)] if text else []
        call = self.call(ended)
        if call is not None:
            output.append(call)
        usage = ResponseUsage.of(usage_of(ended, self._turn))
        if ended.error is not None:
            error = ResponseError(code="server_error", message=ended.error["message"])
            return self._whole("failed", output, error=error, usage=usage)
        if ended.stop_reason == "cancelled":
            return self._whole("cancelled", output, usage=usage)
        if ended.stop_reason == "max_steps":
            cut = IncompleteDetails()
            return self._whole("incomplete", output, incomplete_details=cut, usage=usage)
        return self._whole("completed", output, usage=usage)

    def message(self, text: str) -> OutputMessage:
        content = [OutputText(text=text)]
        return OutputMessage(id=self.message_id, status="completed", content=content)

    def call(self, ended: End) -> OutputCall | None:
        call = function_call(ended, self._turn)
        return None if call is None else OutputCall.of(call)

    def _whole(
        self,
        status: Status,
        output: list[OutputMessage | OutputCall],
        **more: Any,  # noqa: ANN401
    ) -> ResponseObject:
        return ResponseObject(
            id=turn_id("resp_", self._turn, self._after),
            created_at=int(self._turn.created_at.timestamp()),
            status=status,
            model=self._model,
            output=output,
            memserver=self._extra,
            **self.echo,
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
        closing = self._close() if self._text else []
        call = self._answer.call(ended)
        if call is not None:
            closing += self._call(call, output_index=1 if self._text else 0)
        whole = self._answer.ended(self._text, ended)
        # OpenAI's streams have no event of a cancelled response.
        kind = "incomplete" if whole.status == "cancelled" else whole.status
        return [*closing, self._event(f"response.{kind}", response=whole.model_dump())]

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

    def _call(self, call: OutputCall, *, output_index: int) -> list[str]:
        begun = call.model_copy(update={"status": "in_progress", "arguments": ""}).model_dump()
        place = {"item_id": call.id, "output_index": output_index}
        text, kind = call.arguments, "response.function_call_arguments"
        return [
            self._event("response.output_item.added", output_index=output_index, item=begun),
            self._event(f"{kind}.delta", **place, delta=text),
            self._event(f"{kind}.done", **place, name=call.name, arguments=text),
            self._event(
                "response.output_item.done", output_index=output_index, item=call.model_dump()
            ),
        ]

    def _event(self, kind: str, **data: Any) -> str:  # noqa: ANN401 - JSON
        self._number += 1
        whole = {"type": kind, "sequence_number": self._number, **data}
        return f"event: {kind}\ndata: {event_data(whole)}\n\n"
