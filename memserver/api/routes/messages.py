"""Messages: posting them, as JSON or as a stream, listing and importing."""

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse

from memserver.agent.conversation import Conversation
from memserver.api.dependencies import Limit, ServicesDep, TenantDep
from memserver.api.errors import STATUS, body
from memserver.api.message_schemas import (
    Answer,
    ImportIn,
    MessageIn,
    MessageOut,
    MessagePage,
    TurnOut,
)
from memserver.api.sse import encode
from memserver.errors import InvalidInput
from memserver.storage import agents, inbox, recall
from memserver.storage.inbox import NewMessage, Turn

router = APIRouter(prefix="/agents/{agent_id}", tags=["messages"])

LastEventId = Annotated[
    int, Header(alias="Last-Event-ID", ge=0, le=2**62, description="The last id that was read.")
]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A repeated request with the same key is stored and answered once.",
    ),
]


@router.post(
    "/messages",
    response_model=Answer,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The agent's answer."}},
)
async def post_message(
    agent_id: UUID,
    message: MessageIn,
    services: ServicesDep,
    tenant: TenantDep,
    key: IdempotencyKey = None,
) -> Response:
    """Say something to the agent and get its answer.

    The message is stored before the model is asked. If the model fails, the answer is an error, the
    message stays in the agent's history, and the next message works.
    """
    turn = await services.conversation.post(tenant, agent_id, message.text, key=key, at=message.at)
    return await respond(services.conversation, tenant, turn, stream=message.stream)


@router.get("/messages")
async def list_messages(
    agent_id: UUID,
    services: ServicesDep,
    tenant: TenantDep,
    after: Annotated[
        int | None, Query(ge=0, le=2**62, description="Later than this position.")
    ] = None,
    before: Annotated[
        int | None, Query(ge=0, le=2**62, description="Earlier than this position.")
    ] = None,
    limit: Limit = 50,
) -> MessagePage:
    """The history: newest first, or with `after` oldest first.

    `next` goes into the parameter that the request used, or into `before` if it used neither.
    What still waits in the inbox is not listed yet.
    """
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        found = await recall.history_page(tx, agent_id, after=after, before=before, limit=limit + 1)
    more = found[limit - 1].position if len(found) > limit else None
    return MessagePage(items=[MessageOut.read(message) for message in found[:limit]], next=more)


@router.post("/messages/import", responses={202: {"model": TurnOut, "description": "Stored."}})
async def import_messages(
    agent_id: UUID,
    past: ImportIn,
    services: ServicesDep,
    tenant: TenantDep,
    response: Response,
    key: IdempotencyKey = None,
    wait: Annotated[bool, Query(description="Answer when all is worked in; else at once.")] = True,
) -> TurnOut:
    """Import past messages with their own times, oldest first, without asking for replies.

    They are stored together, and then counted, evicted and summarised as if they had just come.
    """
    times = [message.created_at for message in past.messages if message.created_at]
    if times != sorted(times):
        raise InvalidInput("messages: created_at must not go back.", hint="Sort them by time.")
    messages = [
        NewMessage(message.text, 0, message.role, message.created_at) for message in past.messages
    ]
    turn = await services.conversation.import_messages(tenant, agent_id, messages, key=key)
    if wait:
        await services.conversation.result(tenant, turn)
        async with services.database.tenant(tenant) as tx:
            turn = await inbox.get_turn(tx, agent_id, turn.turn)
    else:
        services.worker.kick(agent_id, tenant)
        response.status_code = 202
    return TurnOut.read(turn)


@router.get("/turns/{turn}")
async def get_turn(agent_id: UUID, turn: int, services: ServicesDep, tenant: TenantDep) -> TurnOut:
    """How a turn stands: a message's, or an import's."""
    async with services.database.tenant(tenant) as tx:
        return TurnOut.read(await inbox.get_turn(tx, agent_id, min(turn, 2**62)))


@router.get(
    "/turns/{turn}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The turn's events."}},
)
async def get_turn_events(
    agent_id: UUID,
    turn: int,
    services: ServicesDep,
    tenant: TenantDep,
    last_event_id: LastEventId = 0,
) -> StreamingResponse:
    """A turn as server-sent events, from its beginning or, with Last-Event-ID, behind that event.

    For a client that lost its connection; the turn goes on without it.
    """
    async with services.database.tenant(tenant) as tx:
        found = await inbox.get_turn(tx, agent_id, min(turn, 2**62))
    return _stream(services.conversation, tenant, found, after=last_event_id)


async def respond(
    conversation: Conversation, tenant: str, turn: Turn, *, stream: bool, after: int = 0
) -> Response:
    """What comes of a turn behind a position, whole or as a stream."""
    if stream:
        return _stream(conversation, tenant, turn, after=after)
    result = await conversation.result(tenant, turn, after=after)
    ended = result.ended
    if ended.error is not None:
        return JSONResponse(body(**ended.error), STATUS[ended.error["code"]])
    answer = Answer.of(ended, list(result.messages))
    return Response(answer.model_dump_json(), media_type="application/json")


def _stream(
    conversation: Conversation, tenant: str, turn: Turn, *, after: int = 0
) -> StreamingResponse:
    return StreamingResponse(
        _events(conversation, tenant, turn, after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


async def _events(
    conversation: Conversation, tenant: str, turn: Turn, after: int
) -> AsyncIterator[str]:
    async for event in conversation.follow(tenant, turn, text=True, after=after):
        for frame in encode(event):
            yield frame
