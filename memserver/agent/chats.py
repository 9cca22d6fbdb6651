"""Which of a client's chats a message belongs to, where a client has several with one agent.

An agent has one history, in which its chats follow each other as they came. A message belongs to the chat that
the client names; else to that of the newest exchange of its transcript which the history has; else it begins
one. Where the chat is another than that of the message before, or the client has gone back in it, the prompt
says so before the message: see `Chat.note`.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.storage import transcripts
from memserver.storage.database import Transaction
from memserver.storage.transcripts import TranscriptEntry

EXCERPT = 1200
"""Characters that are quoted of the end of a chat to which the user returns."""
NEW = "[event] chat: this message begins another chat, apart from the messages above."
OTHER = "[event] chat: this message belongs to another chat than the messages above."
BACK = "[event] chat: this message continues an earlier chat.\nIt ended with:"
"""What is quoted comes from the second line on: erasing a message erases that."""
AGAIN = "[event] chat: another answer to this message is wanted instead of the one above."
EDITED = "[event] chat: the user went back in this chat; this message replaces what followed there."


@dataclass(frozen=True, slots=True)
class ChatHint:
    """What a client says of the chat: its name for it, or a position of the history that it continues."""

    named: str | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    """The chat of a message; `note` is what the prompt says before it, None where the chat just continues."""

    id: str | None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """What a history has of a transcript.

    Attributes:
        entries: the newest ones of the history, oldest first.
        known: the end of what the transcript repeats of it, as role and text.
        place: where the newest of these stands in the history; -1 where there are none.
        answers: whether the transcript has an answer at all.
        unanswered: texts of the user's that follow in it and have been posted before.
        text: what the user says now.
    """

    entries: Sequence[TranscriptEntry]
    known: Sequence[tuple[str, str]]
    place: int
    answers: bool
    unanswered: Sequence[str]
    text: str


async def find_chat(tx: Transaction, agent_id: UUID, read: Read, hint: ChatHint) -> Chat:
    """The chat of what the user says now; reads nothing more where it just continues."""
    asked = [entry for entry in read.entries if entry.role == "user"]
    last = asked[-1] if asked else None
    of_last = [entry for entry in asked if last is not None and entry.chat == last.chat]
    place = read.place if hint.after is None else hint.after
    if hint.named is not None:
        found: str | None = hint.named
        known = bool(read.known) or any(entry.chat == found for entry in asked)
    elif place >= 0:
        found, known = await _at(tx, agent_id, place, last), True
    elif last is not None and not read.answers and [each.text for each in of_last] == [read.text]:
        return Chat(last.chat)  # a chat's one message again, for another answer
    else:
        found, known = secrets.token_hex(8), False
    if last is None:
        return Chat(found)
    if found == last.chat:
        return Chat(found, _gone_back(of_last, read))
    if known:
        return Chat(found, _back(read.known))
    # A client that sends each message alone doesn't mean a new chat each time.
    return Chat(found, NEW if len(of_last) > 1 or hint.named is not None else None)


async def _at(
    tx: Transaction, agent_id: UUID, place: int, last: TranscriptEntry | None
) -> str | None:
    if last is not None and last.position <= place:
        return last.chat
    return await transcripts.chat_at(tx, agent_id, place)


def _gone_back(asked: Sequence[TranscriptEntry], read: Read) -> str | None:
    """What to say where the chat continues from before its end."""
    if read.place < 0:
        return None
    left = [e.text for e in asked if e.position > read.place and e.text not in read.unanswered]
    if not left:
        return None
    return AGAIN if left[-1] == read.text else EDITED


def _back(known: Sequence[tuple[str, str]]) -> str:
    lines: list[str] = []
    room = EXCERPT
    for role, text in reversed(known):
        if room <= 0:
            break
        lines.append(f"{'you' if role == 'assistant' else 'user'}: {_cut(text, room)}")
        room -= len(text)
    return "\n".join([BACK, *reversed(lines)]) if lines else OTHER


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[-most:]}"
