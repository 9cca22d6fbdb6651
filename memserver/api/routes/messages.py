"""Messages: posting them, as JSON or as a stream, listing and importing."""

from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from memserver.agent.conversation import Conversation
from memserver.agent.events import QueuedTurn
from memserver.agent.rendering import Happening
from memserver.api.dependencies import AgentId, BeginDep, NewestFirst, ServicesDep, TenantDep
from memserver.api.errors import body, log_if_database, turn_failed
from memserver.api.event_stream import EventStream
from memserver.api.hang_up import HangUp, HangUpDep
from memserver.api.json_body import Router
from memserver.api.pictures import PictureUrl, read_pictures
from memserver.api.schemas.answers import answer, turn_status, turn_under_lens
from memserver.api.schemas.messages import EventIn, ImportIn, MessageIn
from memserver.api.sse import encode, error_frame
from memserver.errors import InvalidInput, MemserverError
from memserver.memory import reading
from memserver.memory.pictures import marker
from memserver.storage import agents, inbox, recall, turn_steps
from memserver.storage.inbox import NewMessage
from memserver.wire.agents import AgentOptions
from memserver.wire.base import Page
from memserver.wire.messages import Answer, Message, Turn
from memserver.wire.steps import TurnSteps
from memserver.wiring.services import Services

router = Router(prefix="/agents/{agent}", tags=["messages"])

TURN_HEADER = "Memserver-Turn"
"""A streamed answer's: the number of its turn, before its first event."""

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


def streamed(description: str) -> dict[int | str, dict[str, Any]]:
    """What a route answers that answers as a stream, too."""
    return {200: {"content": {"text/event-stream": {}}, "description": description}}


QUEUED: dict[str, Any] = {
    "model": Answer,
    "description": "Stored. It is answered after the turn whose call waits for an answer: see `blocked_by`.",
}


@router.post(
    "/messages", response_model=Answer, responses={**streamed("The agent's answer."), 202: QUEUED}
)
async def post_message(
    agent_id: AgentId,
    message: MessageIn,
    services: ServicesDep,
    tenant: TenantDep,
    hang_up: HangUpDep,
    key: IdempotencyKey = None,
) -> Response:
    """Say something to the agent and get its answer.

    The message is stored before the model is asked. If the model fails, the answer is an error, the
    message stays in the agent's history, and the next message works. While a call of the agent waits for
    an answer, the message is stored and answered after that: the answer is then 202, at once.
    """
    said = await _with_pictures(services, tenant, agent_id, message)
    turn = await services.conversation.post(tenant, agent_id, said, key=key, at=message.created_at)
    return await respond(services, tenant, turn, stream=message.stream, hang_up=hang_up)


async def _with_pictures(
    services: Services, tenant: str, agent_id: UUID, message: MessageIn
) -> NewMessage:
    if not message.pictures:
        return NewMessage(message.text, 0, expires_at=message.expires_at)
    async with services.database.tenant(tenant) as tx:
        agent = await agents.get(tx, agent_id)
    urls = [
        PictureUrl(each.url, each.name, f"pictures[{n}]") for n, each in enumerate(message.pictures)
    ]
    pictures = await read_pictures(services, tenant, agent.model, urls)
    markers = [marker(each.name) for each in pictures]
    text = "\n".join(filter(None, [message.text, *markers]))
    return NewMessage(text, 0, pictures=pictures, expires_at=message.expires_at)


@router.post(
    "/events",
    response_model=Answer,
    responses={**streamed("What the agent says, if anything."), 202: QUEUED},
)
async def post_event(
    agent_id: AgentId,
    event: EventIn,
    services: ServicesDep,
    tenant: TenantDep,
    hang_up: HangUpDep,
    key: IdempotencyKey = None,
) -> Response:
    """Report to the agent that something happened. It may say or do something then, or leave it at that.

    The event is stored before the model is asked, and has a turn, as a message has.
    """
    kind = "" if event.type == "custom" else event.type
    happened = Happening(kind, event.text or "", event.expires_at)
    turn = await services.conversation.post_event(tenant, agent_id, happened, key=key)
    return await respond(services, tenant, turn, stream=event.stream, hang_up=hang_up)


@router.get("/messages")
async def list_messages(
    agent_id: AgentId, begin: BeginDep, listing: NewestFirst
) -> Page[Message, int]:
    """List the history. What still waits in the inbox is not listed yet.

    `after` is a position: with `order=asc` later messages follow, with `order=desc` earlier ones.
    """
    async with begin() as tx:
        await agents.get(tx, agent_id)
        found = await recall.history_page(tx, agent_id, listing.query)
    return listing.page(Page[Message, int], found, lambda message: message.position)


@router.get("/messages/{position}")
async def get_message(
    agent_id: AgentId, position: Annotated[int, Path(ge=0, lt=10**18)], begin: BeginDep
) -> Message:
    """Get one message of the history."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        return Message.model_validate(await reading.message_at(tx, agent_id, position))


@router.post("/messages/import", responses={202: {"model": Turn, "description": "Stored."}})
async def import_messages(
    agent_id: AgentId,
    past: ImportIn,
    services: ServicesDep,
    tenant: TenantDep,
    response: Response,
    key: IdempotencyKey = None,
    wait: Annotated[bool, Query(description="Answer when all is worked in; else at once.")] = True,
) -> Turn:
    """Import past messages with their own times, oldest first, without asking for replies.

    They are stored together, and then counted, evicted and summarised as if they had just come.
    """
    times = [message.created_at for message in past.messages if message.created_at]
    if times != sorted(times):
        raise InvalidInput("messages: created_at must not go back.", hint="Sort them by time.")
    messages = [
        NewMessage(each.text, 0, each.role, each.created_at, expires_at=each.expires_at)
        for each in past.messages
    ]
    turn = await services.conversation.import_messages(tenant, agent_id, messages, key=key)
    queued = None
    if wait:
        ended = (await services.conversation.result(tenant, turn)).ended
        queued = ended if isinstance(ended, QueuedTurn) else None
        async with services.database.tenant(tenant) as tx:
            turn = await inbox.get_turn(tx, agent_id, turn.turn)
    else:
        services.worker.ensure_serving(agent_id, tenant)
    if queued is not None or not wait:
        response.status_code = 202
    return turn_status(turn, queued)


@router.get("/turns/{turn}")
async def get_turn(agent_id: AgentId, turn: int, services: ServicesDep, tenant: TenantDep) -> Turn:
    """How a turn stands: a message's, or an import's."""
    async with services.database.tenant(tenant) as tx:
        found = await inbox.get_turn(tx, agent_id, min(turn, 2**62))
        return turn_status(found, await services.conversation.find_blocker(tx, found))


@router.get("/turns/{turn}/steps")
async def get_turn_steps(
    agent_id: AgentId, turn: int, services: ServicesDep, tenant: TenantDep
) -> TurnSteps:
    """A turn under the lens: each step's prompt in tokens by part, its times, what the model was sent and replied.

    Prompts and replies are there where the agent's option `trace` was on, for a week unless set.
    """
    async with services.database.tenant(tenant) as tx:
        found = await inbox.get_turn(tx, agent_id, min(turn, 2**62))
        agent = await agents.get(tx, agent_id)
        steps = await turn_steps.read(tx, agent_id, found.turn)
    options = AgentOptions.model_validate(agent.options)
    return turn_under_lens(found, steps, traced=services.deps.limits.traces(options))


@router.get(
    "/turns/{turn}/events",
    response_class=StreamingResponse,
    responses=streamed("The turn's events."),
)
async def get_turn_events(
    agent_id: AgentId,
    turn: int,
    services: ServicesDep,
    tenant: TenantDep,
    last_event_id: LastEventId = 0,
) -> EventStream:
    """A turn as server-sent events, from its beginning or, with Last-Event-ID, after that event.

    For a client that lost its connection; the turn continues without it.
    """
    async with services.database.tenant(tenant) as tx:
        found = await inbox.get_turn(tx, agent_id, min(turn, 2**62))
    return _stream(services, tenant, found, after=last_event_id)


async def respond(
    services: Services,
    tenant: str,
    turn: inbox.TurnRow,
    *,
    stream: bool,
    after: int = 0,
    hang_up: HangUp | None = None,
) -> Response:
    """What comes of a turn after a position, whole or as a stream."""
    if stream:
        return _stream(services, tenant, turn, after=after, hang_up=hang_up)
    coming = services.conversation.result(tenant, turn, after=after)
    result = await (hang_up.watched(turn, coming) if hang_up else coming)
    ended = result.ended
    if ended.error is not None:
        return turn_failed(ended.error)
    shown = answer(ended, result.messages)
    status = 202 if isinstance(ended, QueuedTurn) else 200
    return Response(shown.model_dump_json(), status, media_type="application/json")


def _stream(
    services: Services,
    tenant: str,
    turn: inbox.TurnRow,
    *,
    after: int = 0,
    hang_up: HangUp | None = None,
) -> EventStream:
    return EventStream(
        _events(services.conversation, tenant, turn, after),
        services.ping_seconds,
        headers={TURN_HEADER: str(turn.turn)},
        on_hang_up=hang_up.action(turn) if hang_up else None,
    )


async def _events(
    conversation: Conversation, tenant: str, turn: inbox.TurnRow, after: int
) -> AsyncIterator[str]:
    try:
        async for event in conversation.follow(tenant, turn, text=True, after=after):
            for part in encode(event):
                yield part
    except MemserverError as error:  # it is too late for a status
        log_if_database(f"The stream of turn {turn.turn}", error)
        yield error_frame(body(error.code, error.message, error.hint))
