"""What of a transcript that a client keeps an agent's history already has. Compares texts, knows no meaning."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.messages import Role
from memserver.storage.database import Transaction
from memserver.storage.rows import fetch_all, fetch_value


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """Something that was said: its place in the history, by whom, and its text without outer blanks.

    `chat` is that of a message of the user's, if it was read.
    """

    position: int
    role: Role
    text: str
    chat: str | None = None


async def newest(tx: Transaction, agent_id: UUID, limit: int) -> list[TranscriptEntry]:
    """The newest entries of the history, also what still waits in the inbox, oldest first."""
    query = """SELECT position, role, said_text(content) AS text, chat FROM messages
               WHERE agent_id = %s AND role IN ('user', 'assistant') AND content <> ''
               ORDER BY position DESC LIMIT %s"""  # said_text trims, as clients do
    return (await fetch_all(tx, TranscriptEntry, query, [agent_id, limit]))[::-1]


async def with_texts(
    tx: Transaction, agent_id: UUID, texts: Sequence[str]
) -> list[TranscriptEntry]:
    """The entries of the whole history that say just one of these texts, oldest first."""
    query = """SELECT said_at AS position, said_by AS role, said AS text
               FROM messages_saying(%s, %s)"""
    return await fetch_all(tx, TranscriptEntry, query, [agent_id, list(texts)])


async def chat_at(tx: Transaction, agent_id: UUID, position: int) -> str | None:
    """The chat that what stands at a position belongs to: that of the user's message it follows."""
    query = """SELECT chat FROM messages WHERE agent_id = %s AND position <= %s AND role = 'user'
               ORDER BY position DESC LIMIT 1"""
    found: str | None = await fetch_value(tx, query, [agent_id, position])
    return found
