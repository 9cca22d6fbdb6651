"""From a request in OpenAI's form to a turn, and from the turn's events to text that can't be taken back."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, NamedTuple
from uuid import UUID

from fastapi import Header

from memserver.agent.chats import ChatHint
from memserver.agent.endings import as_json
from memserver.agent.events import (
    End,
    EndedTurn,
    Event,
    PausedTurn,
    QueuedTurn,
    StepCommitted,
    TurnResult,
)
from memserver.agent.transcript import BETWEEN, Said, says_something, unread
from memserver.api.errors import log_if_database
from memserver.api.openai.client_tools import check_request, continue_turn, function_call
from memserver.api.openai.errors import Refusal, queued, turn_failed
from memserver.api.pictures import PictureUrl, read_pictures
from memserver.errors import InvalidInput, MemserverError, NotFound
from memserver.messages import Entry
from memserver.storage import agents, inbox
from memserver.storage.agents import AgentRow
from memserver.storage.cancellation import CANCELLED
from memserver.storage.inbox import PLACES_PER_TURN, NewMessage, TurnRow
from memserver.tools.turn_request import NO_REQUEST, TurnRequest
from memserver.wire.events import MessageDelta
from memserver.wiring.services import Services

FIRST_SECONDS = 1.0
"""How long a stream waits for its first piece, so that a turn that fails at once is a status and not an event."""
LONGEST_TEXT = 1_000_000
MOST_PAST = 10_000
_TURN_ID = re.compile(r"^(?:chatcmpl-|resp_)([0-9a-f]{32})_(\d{1,18})(?:_(\d{1,3}))?$")

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A repeated request with the same key is stored and answered once.",
    ),
]


class Posting(NamedTuple):
    """How a request came: its key, whether the client has sent it before, what it says of the chat and of expiry, and what it brings."""

    key: str | None
    repeated: bool
    chat: ChatHint
    expires_at: datetime | None
    request: TurnRequest = NO_REQUEST


async def begin(
    services: Services, tenant: str, agent: AgentRow, transcript: Sequence[Said], posting: Posting
) -> tuple[TurnRow, int]:
    """Post what of the transcript is new to the agent; a request that is repeated finds its turn again.

    Returns:
        The turn, and the position after which lies what answers the request.

    Raises:
        InvalidInput: nothing is new.
    """
    key, request = posting.key, posting.request
    await check_request(services, agent, request)
    is_cut = request.ends_with_result and all(said.role == "user" for said in transcript)
    if request.results and (is_cut or not says_something(transcript)):
        return await continue_turn(services, tenant, agent, request, key)
    async with services.database.tenant(tenant) as tx:
        new = await unread(tx, agent.id, transcript, posting.chat)
        if posting.repeated and key is None and new.same is not None:
            same = await inbox.get_turn(tx, agent.id, new.same)
            if not (services.cancel_on_hang_up and same.stop_reason == CANCELLED):
                return same, 0
    if len(new.text) > LONGEST_TEXT:
        raise InvalidInput(f"messages: a text may have {LONGEST_TEXT:,} characters.")
    if len(new.past) > MOST_PAST:
        raise InvalidInput(
            f"messages: {len(new.past):,} are new to the agent; {MOST_PAST:,} are the most at a time.",
            hint="Import them by POST /v1/agents/{agent}/messages/import.",
        )
    urls = [PictureUrl(url, place=place) for place, url in new.pictures]
    pictures = await read_pictures(services, tenant, agent.model, urls)
    if new.past:
        messages = [
            NewMessage(each.text, 0, each.role, chat=new.chat.id, expires_at=posting.expires_at)
            for each in new.past
        ]
        await services.conversation.import_messages(
            tenant, agent.id, messages, key=_key_of(new.past)
        )
    message = NewMessage(
        new.text,
        0,
        chat=new.chat.id,
        chat_note=new.chat.note,
        pictures=pictures,
        expires_at=posting.expires_at,
    )
    turn = await services.conversation.post(tenant, agent.id, message, key=key, request=request)
    return turn, 0


def turn_id(kind: str, turn: TurnRow, after: int = 0) -> str:
    """By which a client knows the answer: `kind` is chatcmpl- or resp_; `after` is where it begins in the turn."""
    place = f"_{after % PLACES_PER_TURN}" if after else ""
    return f"{kind}{turn.agent_id.hex}_{turn.turn}{place}"


async def find_turn(
    services: Services, tenant: str, response_id: str
) -> tuple[AgentRow, TurnRow, int]:
    """The agent and the turn of such an id, and where in it the answer begins. Raises NotFound."""
    match = _TURN_ID.match(response_id)
    try:
        if match is None:
            raise NotFound("It is no id of an answer.")
        async with services.database.tenant(tenant) as tx:
            agent = await agents.get(tx, UUID(match[1]))
            turn = await inbox.get_turn(tx, agent.id, min(int(match[2]), 2**62))
            return agent, turn, turn.first_position + int(match[3]) if match[3] else 0
    except NotFound as error:
        raise NotFound(
            f"There is no response {response_id[:100]!r}.",
            hint="Its id is the `id` of the answer; it is gone with its agent.",
        ) from error


def text_of(messages: Sequence[Entry]) -> str:
    return BETWEEN.join(each.text for each in messages if each.role == "assistant" and each.text)


def finish_reason(ended: End, turn: TurnRow) -> str:
    """Why the answer ends, as a chat completion says it; `Extra.stop_reason` has more to say."""
    if function_call(ended, turn) is not None:
        return "tool_calls"
    return "length" if ended.stop_reason == "max_steps" else "stop"


async def finish_turn(services: Services, tenant: str, turn: TurnRow, after: int = 0) -> TurnResult:
    """What came of the turn. Raises Refusal: it failed, or is queued after a call that waits."""
    result = await services.conversation.result(tenant, turn, after=after, by_request=True)
    _check(result.ended)
    return result


def _check(end: End) -> None:
    if end.error is not None:
        raise turn_failed(end.error)
    if isinstance(end, QueuedTurn):
        raise queued(end)


async def start_turn(
    services: Services, tenant: str, turn: TurnRow, after: int = 0
) -> AsyncIterator[str | End]:
    """The turn as text to show, piece by piece, and its end; returns when there is a piece, or soon without one.

    Raises:
        Refusal: the turn failed at once, or is queued; later the stream reports it.
    """
    following = services.conversation.follow(tenant, turn, text=True, after=after, by_request=True)

    async def refuse_if_queued() -> None:
        async with services.database.tenant(tenant) as tx:
            blocked = await services.conversation.find_blocker(tx, turn)
        if blocked is not None:
            raise queued(blocked)

    return await start_pieces(_pieces(following), turn, services.ping_seconds, refuse_if_queued)


async def start_pieces(
    pieces: AsyncGenerator[str | End],
    turn: TurnRow,
    ping_seconds: float,
    refuse: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[str | End]:
    """The same pieces, once there is the first one, or soon without it; an error after that is their end.

    Raises:
        Refusal: the end came at once, or `refuse` raises it where nothing came.
    """
    first = asyncio.ensure_future(anext(pieces))
    await asyncio.wait([first], timeout=min(FIRST_SECONDS, ping_seconds))
    if not first.done() and refuse is not None:
        try:
            await refuse()
        except Refusal:
            first.cancel()
            raise
    if first.done() and isinstance(end := first.result(), End):
        await pieces.aclose()
        _check(end)

    async def all_of_it() -> AsyncIterator[str | End]:
        async with aclosing(pieces):
            try:
                yield await first
                async for piece in pieces:
                    yield piece
            except MemserverError as error:
                log_if_database(f"The stream of turn {turn.turn}", error)
                yield EndedTurn(turn.turn, turn.steps, "error", turn.usage, as_json(error))

    return all_of_it()


async def _pieces(events: AsyncGenerator[Event]) -> AsyncGenerator[str | End]:
    spoken = Spoken()
    async with aclosing(events):
        async for event in events:
            piece = ""
            match event:
                case MessageDelta(step=step, text=text):
                    piece = spoken.hear(step, text)
                case StepCommitted(messages):
                    piece = "".join(
                        spoken.commit(each.text)
                        for each in messages
                        if each.role == "assistant" and each.text
                    )
                case QueuedTurn(turn):
                    yield EndedTurn(turn, event.steps, "error", event.usage, queued(event).error)
                case EndedTurn() | PausedTurn():
                    yield event
                case _:
                    pass
            if piece:
                yield piece


@dataclass
class Spoken:
    """What was shown, where deltas may turn out void: then what counts follows after it.

    Attributes:
        closed: whether a message was committed or turned out void, so that the next text begins again.
        open: what was shown of the message that is being generated.
    """

    closed: bool = False
    open: str = ""
    _step: int = -1
    _heard: str = field(default="")

    def hear(self, step: int, text: str) -> str:
        """More of the message that a step generates; returns what is to be shown."""
        if step != self._step:
            self._step, self._heard = step, ""
        self._heard += text
        if self.open.startswith(self._heard):
            return ""  # again what was shown in an attempt that failed
        return self._show(self._heard)

    def commit(self, text: str) -> str:
        """What the agent said, for good; returns what is to be shown of it."""
        piece = "" if text == self.open else self._show(text)
        self.closed, self.open, self._step = True, "", -1
        return piece

    def _show(self, text: str) -> str:
        if text.startswith(self.open):
            piece = text[len(self.open) :]
            separator = BETWEEN if self.closed and not self.open else ""
        else:
            piece, separator = text, BETWEEN
        self.open = text
        return separator + piece


def _key_of(past: Sequence[Said]) -> str:
    digest = hashlib.sha256()
    for said in past:
        digest.update(f"{said.role}\0{said.text}\0".encode())
    return f"openai-history-{digest.hexdigest()}"
