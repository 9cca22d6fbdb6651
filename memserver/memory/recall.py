"""Recall storage as a tool and a caller search it: by substring, by date, by role; page by page or behind a cursor."""

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from uuid import UUID

from memserver.errors import InvalidInput
from memserver.memory.paging import Page, header
from memserver.memory.results import Reader, describe, message_label, message_result
from memserver.memory.text import snippet, stamp
from memserver.messages import Message
from memserver.storage import recall
from memserver.storage.database import Transaction
from memserver.storage.recall import Found, Place, RecallQuery, Span

RESULT_CHARACTERS = 400
COUNTED_TO = 10_000
"""Results that are counted exactly; of a word in every message nobody needs to know more."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecallPage:
    """What a search found on one page; `exact`: whether `total` is all, or there are more."""

    messages: tuple[Message, ...]
    total: int
    exact: bool
    next: str | None
    page: Page
    query: str = ""

    async def describe(self, zone: tzinfo, reader: Reader) -> str:
        """The answer of a search tool, its times in this zone, for who reads it."""
        results = [message_result(message, zone) for message in self.messages]
        head = header(len(results), self.page, self.total, exact=self.exact)
        return await describe(head, results, self.query, reader)


async def search(tx: Transaction, agent_id: UUID, query: RecallQuery, page: Page) -> RecallPage:
    """Search the history. A page that doesn't exist is empty, with the right total."""
    # A bigint offset: a page number may be anything.
    offset = min(max(page.offset, 0), 2**61)
    limit = page.size if page.number >= 1 else 0
    span = Span(limit, offset, count_to=COUNTED_TO)
    found = await recall.search(tx, agent_id, query, span)
    text = query.text or ""
    return RecallPage(found.messages, found.total, found.exact, _next(found), page, text)


async def search_after(
    tx: Transaction, agent_id: UUID, query: RecallQuery, cursor: str, limit: int
) -> tuple[tuple[Message, ...], str | None]:
    """The results behind a cursor, whatever has arrived since it was given; and the next cursor.

    Raises:
        InvalidInput: it is no cursor.
    """
    found = await recall.search(tx, agent_id, query, Span(limit, after=read_cursor(cursor)))
    return found.messages, _next(found)


def write_cursor(place: Place) -> str:
    """A place as an opaque text."""
    micros = (place.created_at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{micros}.{place.position}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> Place:
    """The place that a cursor names. Raises InvalidInput."""
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        micros, position = (int(part) for part in plain.split("."))
        return Place(_EPOCH + timedelta(microseconds=micros), min(position, 2**62))
    except (binascii.Error, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"after: {text!r} is no cursor.", hint="Take the `next` of the page before."
        ) from error


def line(message: Message, zone: tzinfo) -> str:
    """A result as a model reads it."""
    text = snippet(message.text, RESULT_CHARACTERS)
    label = message_label(message.position)
    return f"[{label}, {stamp(message.created_at, zone)}] {message.role}: {text}"


def _next(found: Found) -> str | None:
    if not found.further or not found.messages:
        return None
    last = found.messages[-1]
    return write_cursor(Place(last.created_at, last.position))
