"""Recall storage as a tool and a caller search it: by substring, by date, page by page."""

from dataclasses import dataclass
from datetime import tzinfo
from uuid import UUID

from memserver.memory.paging import Page, describe
from memserver.memory.text import snippet, stamp
from memserver.messages import Message
from memserver.storage import recall
from memserver.storage.database import Transaction
from memserver.storage.recall import RecallQuery

RESULT_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class RecallPage:
    """What a search found on one page."""

    messages: tuple[Message, ...]
    total: int
    page: Page

    def describe(self, zone: tzinfo) -> str:
        """The answer of a search tool, its times in this zone."""
        lines = [_line(message, zone) for message in self.messages]
        return describe(lines, self.page, self.total)


async def search(tx: Transaction, agent_id: UUID, query: RecallQuery, page: Page) -> RecallPage:
    """Search the history. A page that doesn't exist is empty, with the right total."""
    limit = page.size if page.number >= 1 else 0
    # A bigint offset: a page number may be anything.
    offset = min(max(page.offset, 0), 2**62)
    found = await recall.search(tx, agent_id, query, limit=limit, offset=offset)
    return RecallPage(found.messages, found.total, page)


def _line(message: Message, zone: tzinfo) -> str:
    text = snippet(message.text, RESULT_CHARACTERS)
    return f"[{stamp(message.created_at, zone)}] {message.role}: {text}"
