"""What of a transcript that a client keeps an agent's history already has. Compares texts, knows no meaning."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.messages import Role
from memserver.storage.database import Transaction

_SPOKEN = "agent_id = %(agent_id)s AND role IN ('user', 'assistant') AND content <> ''"
# Clients trim what they keep.
_TRIMMED = "said_text(content)"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was said: its place in the history, by whom, and its text without outer blanks."""

    position: int
    role: Role
    text: str


async def newest(tx: Transaction, agent_id: UUID, limit: int) -> list[Entry]:
    """The newest entries of the history, also what still waits in the inbox, oldest first."""
    cursor = await tx.execute(
        f"""SELECT position, role, {_TRIMMED} AS text FROM messages
            WHERE {_SPOKEN} ORDER BY position DESC LIMIT %(limit)s""".encode(),
        {"agent_id": agent_id, "limit": limit},
    )
    return [Entry(**row) for row in reversed(await cursor.fetchall())]


async def with_texts(tx: Transaction, agent_id: UUID, texts: Sequence[str]) -> list[Entry]:
    """The entries of the whole history that say just one of these texts, oldest first."""
    cursor = await tx.execute(
        """SELECT said_at AS position, said_by AS role, said AS text
           FROM messages_saying(%s, %s)""",
        [agent_id, list(texts)],
    )
    return [Entry(**row) for row in await cursor.fetchall()]
