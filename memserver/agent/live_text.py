"""Text while it is generated, for streams that hang on another process than the one that runs the turn.

A stream says what it reads, again and again while it does, and every process hears that; the one that runs the turn then
sends what it has of the message, and what follows. Knows the words on the wire, not who carries them: `worker` does, by
Postgres' notifications. Deltas are provisional, so one that is lost is no loss: its stream asks for the whole once more.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from memserver.storage.leases import TURNS_CHANNEL
from memserver.wire.events import MessageDelta

TEXT_CHANNEL = "memserver_text"
"""NOTIFY channel: more text of a message."""
READERS_CHANNEL = "memserver_readers"
"""NOTIFY channel: a stream reads a turn; the payload is "sender agent-id turn reader"."""
ASK_SECONDS = 2.0
"""How often a stream says that it reads."""
READS_SECONDS = 3 * ASK_SECONDS
"""For how long it does after it has said so."""
LOST_SECONDS = 0.5
"""How soon it says so again when it lacks a part."""
MOST_CHARACTERS = 1200
"""Of text in a notification, which has 8000 bytes at most; JSON makes six of a control character."""

Key = tuple[UUID, int]
Notice = tuple[str, str]
"""A channel and what is sent over it."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the message that is being generated.

    Attributes:
        position: in the history, of the message, at least.
        attempt: a name for this try of the step.
        at: characters of the message before this text.
    """

    step: int
    position: int
    attempt: str
    at: int
    text: str


def attempt_name() -> str:
    """A name for one try of a step: another process may try it again, and texts of two tries are not mixed."""
    return secrets.token_hex(4)


class TextReader:
    """How far one stream has read."""

    def __init__(self) -> None:
        self._attempt = ""
        self._read = 0
        self._name = secrets.token_hex(4)
        self._asked_at: float | None = None

    def take(self, delta: TextDelta, seen: int) -> MessageDelta | None:
        """What of a delta is new to a stream that has seen the history to a position.

        None if nothing is, or something before it is missing, which is asked for.
        """
        if delta.position <= seen:
            return None
        if delta.attempt != self._attempt and delta.at == 0:
            self._attempt, self._read = delta.attempt, 0
        if delta.attempt != self._attempt or delta.at > self._read:
            if self._asked_at is not None and time.monotonic() > self._asked_at + LOST_SECONDS:
                self._ask_again()
            return None
        new = delta.text[self._read - delta.at :]
        self._read += len(new)
        return MessageDelta(step=delta.step, text=new) if new else None

    def name_to_ask_by(self) -> str | None:
        """Under which name to say that it reads, if it is time to; under a new one it gets the message from its beginning."""
        now = time.monotonic()
        if self._asked_at is not None and now < self._asked_at + ASK_SECONDS:
            return None
        self._asked_at = now
        return self._name

    def _ask_again(self) -> None:
        self._name = secrets.token_hex(4)
        self._asked_at = None


class LiveText:
    """The messages that are being generated in this process, and who reads them in another one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._sender = secrets.token_hex(4)
        self._clock = clock
        self._messages: dict[Key, list[TextDelta]] = {}
        self._readers: dict[Key, dict[str, float]] = {}
        self._outbox: list[Notice] = []
        self._wake = asyncio.Event()

    def is_read(self, key: Key) -> bool:
        """Whether a stream in another process reads this turn."""
        return any(until > self._clock() for until in self._readers.get(key, {}).values())

    def so_far(self, key: Key) -> TextDelta | None:
        """The message that is being generated here, from its beginning."""
        deltas = self._messages.get(key)
        if not deltas:
            return None
        text = "".join(each.text for each in deltas)
        last = deltas[-1]
        whole = TextDelta(last.step, last.position, last.attempt, 0, text)
        self._messages[key] = [whole]
        return whole

    def add(self, key: Key, delta: TextDelta) -> None:
        if delta.at == 0:
            self._messages[key] = []
        self._messages.setdefault(key, []).append(delta)
        if self.is_read(key):
            self._send_text(key, delta)

    def close(self, key: Key) -> None:
        """A message is committed, or its turn has ended: what waits for it looks."""
        self._messages.pop(key, None)
        if self.is_read(key):
            self._send(TURNS_CHANNEL, f"{key[0]} {key[1]}")

    def ask(self, key: Key, reader: str) -> None:
        """Say to all processes that a stream here reads a turn."""
        self._send(READERS_CHANNEL, f"{self._sender} {key[0]} {key[1]} {reader}")

    def hear_reader(self, payload: str) -> None:
        """A stream somewhere has said that it reads."""
        sender, agent, turn, reader = payload.split(" ")
        if sender == self._sender:
            return
        now = self._clock()
        for other in list(self._readers):
            kept = {name: until for name, until in self._readers[other].items() if until > now}
            self._readers[other] = kept
            if not kept:
                del self._readers[other]
        key = (UUID(agent), int(turn))
        readers = self._readers.setdefault(key, {})
        is_new = reader not in readers
        readers[reader] = now + READS_SECONDS
        if is_new and (whole := self.so_far(key)):
            self._send_text(key, whole)

    def hear_text(self, payload: str) -> tuple[Key, TextDelta] | None:
        """What another process has generated; None for what this one has itself."""
        sender, agent, turn, *delta = json.loads(payload)
        return None if sender == self._sender else ((UUID(agent), turn), TextDelta(*delta))

    async def outgoing(self) -> list[Notice]:
        """All that is to be sent, once there is something."""
        await self._wake.wait()
        self._wake.clear()
        sent, self._outbox = self._outbox, []
        return sent

    def _send_text(self, key: Key, delta: TextDelta) -> None:
        head = [self._sender, str(key[0]), key[1], delta.step, delta.position, delta.attempt]
        for begin in range(0, len(delta.text), MOST_CHARACTERS):
            piece = delta.text[begin : begin + MOST_CHARACTERS]
            body = json.dumps([*head, delta.at + begin, piece], ensure_ascii=False)
            self._send(TEXT_CHANNEL, body)

    def _send(self, channel: str, payload: str) -> None:
        self._outbox.append((channel, payload))
        self._wake.set()
