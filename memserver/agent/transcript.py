"""What an agent has not read yet of a transcript that a client sends whole, time and again.

A client of a model that remembers nothing sends the conversation so far with each request. An agent
remembers it; so only the end of it is new, and whatever the agent was not there for. The rules:

1. New is what the user says after the last assistant message. It is posted as one message.
2. What stands before it is made of exchanges: what the user said, and the assistant's message. One is known
   if the agent's history has its question or its answer: clients change either, by templates or by cutting.
3. All up to the newest known exchange is known. The exchanges after it, which another model answered, are
   past messages that the agent does not know yet.
4. What the user said before the last message, and got no answer to (the turn failed, or was not waited
   for), is left out if the history has it after the newest known exchange.

Memory doesn't branch: a question that is asked again, or put otherwise, comes as a new message.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from memserver.agent.chats import Chat, ChatHint, Read, find_chat
from memserver.errors import InvalidInput
from memserver.storage import transcripts
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.transcripts import TranscriptEntry

WINDOW = 100
"""The newest entries of a history, which are looked at first."""
BETWEEN = "\n\n"
"""Between messages that are posted or read as one."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a client's transcript."""

    role: Literal["user", "assistant"]
    text: str
    pictures: tuple[tuple[str, str], ...] = ()
    """Places in the request and URLs of those that the user shows; the text has a mark in each one's place."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What of a transcript is new to the agent.

    Attributes:
        past: exchanges that the agent was not there for, oldest first.
        text: what the user says now.
        same: the turn of the newest message of all, if that says just this and is no part of the
            transcript: what a request that is repeated has begun already.
        chat: to which the past and the text belong.
        pictures: places in the request and URLs of those that the text shows.
    """

    past: tuple[Said, ...]
    text: str
    same: int | None
    chat: Chat
    pictures: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What the user said, in one or several messages, and the assistant's answer."""

    asked: tuple[str, ...]
    answer: str

    @property
    def questions(self) -> set[str]:
        """How the history may have them: those that were new then, as one message."""
        return {BETWEEN.join(self.asked[start:]) for start in range(len(self.asked))}

    @property
    def messages(self) -> list[Said]:
        asked = [Said("user", text) for text in self.asked]
        return [*asked, Said("assistant", self.answer)] if self.answer else asked


@dataclass
class _History:
    """Entries of the agent's history, to look texts up in."""

    entries: Sequence[TranscriptEntry]
    said: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole: dict[int, list[str]] = {}
        for entry in self.entries:
            if entry.role == "user":
                self.asked[entry.text] = entry.position
                continue
            self.said[entry.text] = entry.position
            texts = whole.setdefault(entry.position // PLACES_PER_TURN, [])
            texts.append(entry.text)
            self.said[BETWEEN.join(texts)] = entry.position

    def place_of(self, exchange: _Exchange) -> int | None:
        """Where the history has it, or None."""
        found = [self.asked[text] for text in exchange.questions if text in self.asked]
        if exchange.answer in self.said:
            found.append(self.said[exchange.answer])
        return max(found, default=None)


async def unread(
    tx: Transaction, agent_id: UUID, transcript: Sequence[Said], hint: ChatHint
) -> Unread:
    """Find what is new to the agent, and which chat it belongs to.

    Raises:
        InvalidInput: nothing is, since the user says nothing at the transcript's end.
    """
    exchanges, last = _exchanges(transcript)
    if not last:
        raise InvalidInput(
            "messages: no user message with words in it stands after the last assistant message.",
            hint="The agent gets what the user says after the last answer; end with that.",
        )
    window = _History(await transcripts.newest(tx, agent_id, WINDOW))
    known, place = _newest_known(exchanges, window)
    if exchanges and known < len(exchanges):
        texts = {text for each in exchanges for text in (*each.questions, each.answer)} - {""}
        whole = _History(await transcripts.with_texts(tx, agent_id, sorted(texts)))
        known, place = _newest_known(exchanges, whole)
    first = 0
    while first < len(last) - 1 and window.asked.get(last[first], -1) > place:
        first += 1
    text = BETWEEN.join(last[first:])
    newest = max(window.asked.values(), default=-1)
    begun = newest > place and window.asked.get(text) == newest
    past = tuple(message for each in exchanges[known:] for message in each.messages)
    if place < 0 and first:
        place = window.asked[last[first - 1]]
    read = Read(
        window.entries,
        [(each.role, each.text) for exchange in exchanges[:known] for each in exchange.messages],
        place,
        bool(exchanges),
        last[:first],
        text,
    )
    chat = await find_chat(tx, agent_id, read, hint)
    said = [message for message in transcript if message.text.strip()][first - len(last) :]
    pictures = tuple(each for message in said for each in message.pictures)
    return Unread(past, text, newest // PLACES_PER_TURN if begun else None, chat, pictures)


def says_something(transcript: Sequence[Said]) -> bool:
    return bool(_exchanges(transcript)[1])


def _exchanges(transcript: Sequence[Said]) -> tuple[list[_Exchange], list[str]]:
    """The transcript's exchanges, and what the user says after the last one."""
    found: list[_Exchange] = []
    asked: list[str] = []
    for message in transcript:
        text = message.text.strip()
        if message.role == "assistant":
            if text or asked:
                found.append(_Exchange(tuple(asked), text))
            asked = []
        elif text:
            asked.append(text)
    return found, asked


def _newest_known(exchanges: Sequence[_Exchange], history: _History) -> tuple[int, int]:
    """How many exchanges, from the first, are known; and where the history has the last of these."""
    for count in range(len(exchanges), 0, -1):
        place = history.place_of(exchanges[count - 1])
        if place is not None:
            return count, place
    return 0, -1
