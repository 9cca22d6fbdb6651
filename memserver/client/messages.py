"""Messages, turns, calls that wait, and recall storage."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method, streamed
from memserver.client.models import (
    Answer,
    Erased,
    Expiring,
    FoundMessage,
    Message,
    Page,
    RecallMode,
    RecallResults,
    Turn,
    TurnSteps,
    WaitingCall,
)
from memserver.client.progress import turn_events
from memserver.client.requests import (
    Date,
    Id,
    JsonObject,
    Paged,
    Request,
    get,
    given,
    new_key,
    nothing,
    post,
)

_MESSAGES = "/agents/{agent}/messages"
_TURN = "/agents/{agent}/turns/{turn}"
_APPROVAL = "/agents/{agent}/calls/{call_id}/approval"
_RESULT = "/agents/{agent}/calls/{call_id}/result"
_SEARCH = "/agents/{agent}/recall/search"


class Messages(Resource[TransportT]):
    """Messages, and the history."""

    @method
    def send(
        self,
        agent: Id,
        text: str,
        *,
        pictures: Sequence[JsonObject] | None = None,
        created_at: datetime | None = None,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Request[Answer]:
        """Say something to the agent and get its answer.

        Args:
            agent: whose.
            text: what is said.
            pictures: what is shown with it: each has a `url` (data:image/png;base64,…), and may have a `name`.
            created_at: when it is said, with a zone; only to an agent whose option clock is "messages".
            expires_at: when it is deleted, and what it is answered; with a zone.
            idempotency_key: give your own to send the same message again later, from another process too,
                without its being stored twice. Retries within this call have one anyway.
        """
        body = given(text=text, pictures=pictures, created_at=created_at, expires_at=expires_at)
        return post(_MESSAGES, Answer, body, key=idempotency_key, agent=agent)

    @method
    def send_event(
        self,
        agent: Id,
        type: Literal["login", "upload", "custom"],
        text: str | None = None,
        *,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Request[Answer]:
        """Report that something happened, and get what the agent says to it, if anything.

        Args:
            agent: whom it concerns.
            type: login, upload, or custom, which needs a text.
            text: more of it.
            expires_at: as of a message.
            idempotency_key: as of a message.
        """
        body = given(type=type, text=text, expires_at=expires_at)
        return post("/agents/{agent}/events", Answer, body, key=idempotency_key, agent=agent)

    @streamed
    def stream(
        self,
        agent: Id,
        text: str,
        *,
        pictures: Sequence[JsonObject] | None = None,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Request[None]:
        """Say something to the agent and follow the turn as events; sent with the first `next`."""
        body = given(text=text, pictures=pictures, expires_at=expires_at)
        return _followed(_MESSAGES, body, idempotency_key, agent=agent)

    @method
    def list(self, agent: Id, **page: Unpack[Paged[int]]) -> Request[Page[Message, int]]:
        """The history, from the position `after` on: newest first, or with the order `asc` oldest first."""
        return get(_MESSAGES, Page[Message, int], page, agent=agent)

    all = items(list.build)

    @method
    def get(self, agent: Id, position: int) -> Request[Message]:
        """Get one message of the history."""
        return get(f"{_MESSAGES}/{{position}}", Message, agent=agent, position=position)

    @method
    def import_past(
        self,
        agent: Id,
        messages: Sequence[JsonObject],
        *,
        wait: bool = True,
        idempotency_key: str | None = None,
    ) -> Request[Turn]:
        """Store past messages, oldest first, without replies.

        Args:
            agent: whose.
            messages: up to 10,000 objects with `role` (user or assistant), `text` and, as wanted,
                `created_at` and `expires_at` (datetimes with a zone).
            wait: answer when all is worked in; else at once, with the turn to look at.
            idempotency_key: as of a message.
        """
        return Request(
            "POST",
            f"{_MESSAGES}/import",
            Turn.model_validate,
            {"agent": agent},
            {"wait": wait},
            {"messages": [*messages]},
            key=idempotency_key or new_key(),
        )

    @method
    def delete(self, agent: Id, position: int, *, redact: bool = False) -> Request[Erased]:
        """Delete one message, with its call and its result; `redact` leaves a placeholder in its place."""
        return _erased(f"{_MESSAGES}/{{position}}", redact, agent=agent, position=position)

    @method
    def delete_many(
        self,
        agent: Id,
        *,
        positions: Sequence[int] = (),
        turns: Sequence[int] = (),
        redact: bool = False,
    ) -> Request[Erased]:
        """Delete messages and whole exchanges: all that are named, or none if one is not there.

        Args:
            agent: whose.
            positions: of messages.
            turns: all of whose messages go.
            redact: leave a placeholder in each place, which the agent reads.
        """
        body = {"positions": [*positions], "turns": [*turns], "redact": redact}
        return post(f"{_MESSAGES}/delete", Erased, body, agent=agent)

    @method
    def expire(
        self,
        agent: Id,
        expires_at: datetime | None,
        *,
        positions: Sequence[int] = (),
        turns: Sequence[int] = (),
    ) -> Request[Expiring]:
        """Say when messages, or all of turns, expire and are deleted; None: they don't."""
        body = {"positions": [*positions], "turns": [*turns], "expires_at": expires_at}
        return post(f"{_MESSAGES}/expire", Expiring, body, agent=agent)


class Turns(Resource[TransportT]):
    """Turns: what became of a message."""

    @method
    def get(self, agent: Id, turn: int) -> Request[Turn]:
        """How a turn stands: a message's, or an import's."""
        return get(_TURN, Turn, agent=agent, turn=turn)

    @method
    def steps(self, agent: Id, turn: int) -> Request[TurnSteps]:
        """A turn under the lens: each step's prompt in tokens by part, its times, what the model was sent and replied.

        Prompts and replies are stored where the agent's option `trace` is on.
        """
        return get(f"{_TURN}/steps", TurnSteps, agent=agent, turn=turn)

    @method
    def cancel(self, agent: Id, turn: int) -> Request[Turn]:
        """End a turn at once, whether it is queued, runs or waits for an answer; what it has committed stays.

        To cancel it again is no error. What came in meanwhile is worked next.

        Raises:
            Conflict: it has ended otherwise (`turn_ended`).
        """
        return post(f"{_TURN}/cancel", Turn, agent=agent, turn=turn)

    @method
    def delete(self, agent: Id, turn: int, *, redact: bool = False) -> Request[Erased]:
        """Delete a whole exchange: all messages of a turn that has ended."""
        return _erased(_TURN, redact, agent=agent, turn=turn)

    @streamed
    def events(self, agent: Id, turn: int, *, after: int | None = None) -> Request[None]:
        """A turn as events, from its beginning or after the event with the id `after`."""
        return turn_events(agent, turn, after)


class Calls(Resource[TransportT]):
    """Calls that wait for a person's approval, or for a result from the caller who runs them.

    A call is answered once. A request that is sent again with its key gets what came of the first.
    """

    @method
    def list(
        self, agent: Id | None = None, **page: Unpack[Paged[Id]]
    ) -> Request[Page[WaitingCall, UUID]]:
        """List the calls that wait for an answer, of one agent or of all; an agent has at most one."""
        query = {"agent": agent, **page}
        return get("/calls/waiting", Page[WaitingCall, UUID], query)

    all = items(list.build)

    @method
    def approve(
        self, agent: Id, call: str, *, idempotency_key: str | None = None
    ) -> Request[Answer]:
        """Let a call run. The turn continues, and the answer is what follows in it."""
        body = {"approve": True}
        return post(_APPROVAL, Answer, body, key=idempotency_key, agent=agent, call_id=call)

    @method
    def deny(
        self, agent: Id, call: str, reason: str | None = None, *, idempotency_key: str | None = None
    ) -> Request[Answer]:
        """Refuse a call; the model reads the reason. The turn continues, and the answer is what follows in it."""
        body = given(approve=False, reason=reason)
        return post(_APPROVAL, Answer, body, key=idempotency_key, agent=agent, call_id=call)

    @method
    def give_result(
        self,
        agent: Id,
        call: str,
        result: Any,  # noqa: ANN401 - JSON
        *,
        failed: bool = False,
        idempotency_key: str | None = None,
    ) -> Request[Answer]:
        """Give the result of a call that you ran. The turn continues, and the answer is what follows in it.

        Args:
            agent: whose.
            call: its id.
            result: text, or any JSON.
            failed: the call failed; `result` says why.
            idempotency_key: as of a message.
        """
        body = {"result": result, "failed": failed}
        return post(_RESULT, Answer, body, key=idempotency_key, agent=agent, call_id=call)

    @streamed
    def stream_decision(
        self,
        agent: Id,
        call: str,
        *,
        approve: bool,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Request[None]:
        """Approve or refuse a call and follow the turn as events, from the call on."""
        body = given(approve=approve, reason=reason)
        return _followed(_APPROVAL, body, idempotency_key, agent=agent, call_id=call)

    @streamed
    def stream_result(
        self,
        agent: Id,
        call: str,
        result: Any,  # noqa: ANN401 - JSON
        *,
        failed: bool = False,
        idempotency_key: str | None = None,
    ) -> Request[None]:
        """Give the result of a call and follow the turn as events, from the call on."""
        body = {"result": result, "failed": failed}
        return _followed(_RESULT, body, idempotency_key, agent=agent, call_id=call)


class RecallFilter(TypedDict, total=False):
    """Which messages are searched: `ignore_case` by the very text alone, upper and lower case alike."""

    ignore_case: bool
    start_date: Date | None
    end_date: Date | None
    role: Literal["user", "assistant"] | None


class Recall(Resource[TransportT]):
    """Recall storage: everything that was said."""

    @method
    def search(
        self,
        agent: Id,
        query: str | None = None,
        *,
        mode: RecallMode = "hybrid",
        page: int = 1,
        after: str | None = None,
        limit: int = 10,
        **filter: Unpack[RecallFilter],
    ) -> Request[RecallResults]:
        """Search what was said.

        Args:
            agent: whose.
            query: what to look for. Messages that hold this very text come first, then those found by its words and
                by meaning; left out: all, oldest first.
            mode: what to look by; hybrid is all three.
            page: from 1.
            after: instead of a page, the `next` of the one before, which a search by the very text has.
            limit: messages on a page.
            **filter: `ignore_case`: by the very text alone, upper and lower case alike; `start_date`, `end_date`:
                when it was said, at the earliest and at the latest; `role`: who said it.
        """
        numbered = None if after is not None else page
        pages = {"mode": mode, "page": numbered, "after": after, "limit": limit}
        return get(_SEARCH, RecallResults, {"query": query, **filter, **pages}, agent=agent)

    @items
    def all(
        self,
        agent: Id,
        query: str | None = None,
        *,
        limit: int = 50,
        **filter: Unpack[RecallFilter],
    ) -> Request[Page[FoundMessage, str]]:
        """All messages that hold the very text; the arguments are those of `search`."""
        found = {"query": query, **filter, "mode": "exact", "limit": limit}
        return Request("GET", _SEARCH, _as_page, {"agent": agent}, found)


def _as_page(body: object) -> Page[FoundMessage, str]:
    """Of a search's results what a list has."""
    return Page[FoundMessage, str].model_validate(body)


def _erased(path: str, redact: bool, **ids: Id | int) -> Request[Erased]:
    """A request that deletes messages."""
    return Request("DELETE", path, Erased.model_validate, ids, {"redact": redact})


def _followed(path: str, body: JsonObject, key: str | None, **ids: Id | int) -> Request[None]:
    """A request whose answer is a stream."""
    whole = {**body, "stream": True}
    return Request("POST", path, nothing, ids, body=whole, key=key or new_key())
