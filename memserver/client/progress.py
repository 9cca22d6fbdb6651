"""How far a stream was read, and how it is asked for again after a broken connection. Sends nothing."""

import json

import httpx2

from memserver.client.events import (
    EVENTS,
    ActionRequired,
    Event,
    MessageDelta,
    TurnEnded,
    TurnQueued,
    TurnStarted,
)
from memserver.client.failures import OtherError, error_of
from memserver.client.requests import Id, JsonObject, Request, nothing
from memserver.client.retries import TRANSIENT

ANY_STEP = -1


def turn_events(agent: Id, turn: int, after: int | None = None) -> Request[None]:
    """A turn as events, from its beginning or after an event's id."""
    ids = {"agent": agent, "turn": turn}
    return Request("GET", "/agents/{agent}/turns/{turn}/events", nothing, ids, after=after)


class Progress:
    """One stream: what is asked for next, and what its frames mean.

    Attributes:
        turn: its number, once known.
        last_event_id: of the last step that was read whole.
        ended: whether its last event was read.
    """

    def __init__(self, request: Request[None]) -> None:
        turn = request.ids.get("turn")
        self.turn = turn if isinstance(turn, int) else None
        self.last_event_id = request.after
        self.ended = False
        self._first = request
        self._parts: set[tuple[int, str]] = set()
        self._connections = 0
        self._left = False
        self._under_way: int | None = None
        self._looked_at = request.after

    @property
    def request(self) -> Request[None]:
        """What to ask for now: the turn after the last event, or, before there is one, the same again.

        What answers a call begins in the middle of a turn, so the turn alone doesn't say where.
        """
        unplaced = "call_id" in self._first.ids and self.last_event_id is None
        if self.turn is None or unplaced or "turn" in self._first.ids:
            return self._first
        return turn_events(self._first.ids["agent"], self.turn)  # type: ignore[arg-type]

    @property
    def headers(self) -> dict[str, str]:
        """Those of that request."""
        found = {**self.request.headers, "Accept": "text/event-stream"}
        if self.last_event_id is not None:
            found["Last-Event-ID"] = str(self.last_event_id)
        return found

    def connected(self, headers: httpx2.Headers) -> bool:
        """Note a connection, whose head may name the turn; whether it stands for one that broke."""
        named = headers.get("Memserver-Turn")
        if self.turn is None and named is not None:
            self.turn = int(named)
        again, broke = self._connections > 0, not self._left
        self._connections += 1
        self._left = False
        self._under_way = ANY_STEP if again else None
        return again and broke

    def left(self) -> None:
        """Note that the reader goes, and comes again perhaps."""
        self._left = True
        self.ended = False  # for now, perhaps: a turn that waits continues

    def moved(self) -> bool:
        """Whether a step was read since this was asked last."""
        before, self._looked_at = self._looked_at, self.last_event_id
        return before != self.last_event_id

    def take(self, frame: httpx2.ServerSentEvent) -> Event | None:
        """The event of a frame; None for what was read before or is not known.

        Raises:
            MemserverError: the turn failed.
        """
        data = json.loads(frame.data)
        if frame.event == "error":
            error = error_of(data) or OtherError("internal_error", frame.data)
            if error.code in TRANSIENT:
                return None  # the stream ends here, and the turn is read on over another connection
            self.ended = True
            raise error
        kind = EVENTS.get(frame.event)
        if kind is None or self._was_read(frame.event, data):
            return None
        event = kind.model_validate(data)
        if isinstance(event, MessageDelta) and self._has_no_beginning(event):
            return None
        if frame.id and int(frame.id) > self._read_to:
            self.last_event_id = int(frame.id)
            self._parts.clear()
        if isinstance(event, TurnStarted | TurnQueued):
            self.turn = event.turn
        self.ended = isinstance(event, TurnEnded | ActionRequired | TurnQueued)
        return event

    @property
    def _read_to(self) -> int:
        return -1 if self.last_event_id is None else self.last_event_id

    def _was_read(self, kind: str, data: JsonObject) -> bool:
        """Whether this was read before: a step whose end was not comes whole once more."""
        if kind == "turn_started":
            return self.turn is not None and self._connections > 1
        position = data.get("position")
        if position is None:
            return False
        part = (position, kind)
        if position <= self._read_to or part in self._parts:
            return True
        self._parts.add(part)
        return False

    def _has_no_beginning(self, delta: MessageDelta) -> bool:
        """Whether this belongs to the step that was under way when the connection was made again."""
        if self._under_way == ANY_STEP:
            self._under_way = delta.step
        return self._under_way == delta.step
