"""Recall storage: reading the history. Writing it belongs to `inbox` and `turn_writes`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memserver.messages import CallRecord, Entry, FunctionCall, ProviderFields
from memserver.storage import pictures
from memserver.storage.database import Transaction
from memserver.storage.inbox import FIRST_WAITING, PLACES_PER_TURN
from memserver.storage.rows import PageQuery, fetch_all, fetch_one, paginate

_COLUMNS = """m.position, m.role, m.content, m.thought, m.tokens, m.created_at, m.chat, m.chat_note, m.pictures, m.expires_at,
    c.call_id, c.name, c.arguments, c.state, c.result, c.finished_at, c.waits_for, c.answer"""
_FROM = "messages m LEFT JOIN tool_calls c ON c.agent_id = m.agent_id AND c.position = m.position"


MOST_CANDIDATES = 500  # messages whose words are compared; common words don't add to them


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """Where a message stands in the order of a search: what comes after it stays after it."""

    created_at: datetime
    position: int


@dataclass(frozen=True, slots=True)
class SearchPage:
    messages: tuple[Entry, ...]
    total: int  # how many match in all; where they were not counted to the end, how many at least
    exact: bool  # whether `total` is all
    further: bool  # whether more come after these


@dataclass(frozen=True, slots=True)
class SearchWindow:
    """Which part of the results is wanted, and how far to count them."""

    limit: int  # messages at most; 0 only counts
    offset: int = 0  # how many to pass over
    after: SearchCursor | None = None  # begin after this place
    # Results that are counted one by one; of more it is only said that there are more
    count_to: int = 0


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """What to look for; absent parts match everything.

    `text` is a literal substring. `since` is inclusive and `until` exclusive. `before` leaves out
    what stands at that position of the history or later. What was found by a text comes newest first,
    else oldest first.
    """

    text: str | None = None
    ignore_case: bool = False
    since: datetime | None = None
    until: datetime | None = None
    roles: Sequence[str] = ("user", "assistant")
    before: int | None = None


async def queue(tx: Transaction, agent_id: UUID, start: int, end: int) -> list[Entry]:
    """The messages from position `start` up to, but not including, `end`."""
    query = f"""SELECT {_COLUMNS}, m.fields FROM {_FROM}
                    AND c.position >= %(start)s AND c.position < %(end)s
                WHERE m.agent_id = %(agent_id)s AND m.position >= %(start)s AND m.position < %(end)s
                ORDER BY m.position"""
    parameters = {"agent_id": agent_id, "start": start, "end": end}
    return await fetch_all(tx, _read_message, query, parameters)


async def history_page(tx: Transaction, agent_id: UUID, page: PageQuery) -> list[Entry]:
    """A page of what the agent has taken up so far, by position.

    What still waits in the inbox isn't part of the history yet, so that the history only ever grows
    at its end and a cursor stays right.
    """
    query = f"""SELECT {_COLUMNS} FROM {_FROM} JOIN agent_state s ON s.agent_id = m.agent_id
                WHERE m.agent_id = %(agent_id)s
                  AND m.position < ({FIRST_WAITING}) * {PLACES_PER_TURN}"""
    return await paginate(tx, _read_message, page, query, {"agent_id": agent_id}, by="m.position")


MATCHES = """recall_search(agent => %(agent_id)s, term => %(text)s, any_case => %(any_case)s,
    since => %(since)s, until => %(until)s, roles => %(roles)s, before => %(before)s,
    newest_first => %(newest_first)s, after_time => %(after_time)s,
    after_position => %(after_position)s, skip => %(skip)s, take => %(take)s,
    count_to => %(count_to)s)"""

_SEARCH = f"""
SELECT f.total, f.exact, f.further, {_COLUMNS}
FROM {MATCHES} f
LEFT JOIN unnest(f.positions) WITH ORDINALITY p (position, place) ON true
LEFT JOIN messages m ON m.agent_id = %(agent_id)s AND m.position = p.position
LEFT JOIN tool_calls c ON c.agent_id = m.agent_id AND c.position = m.position
ORDER BY p.place
"""


async def search(
    tx: Transaction, agent_id: UUID, query: RecallQuery, window: SearchWindow
) -> SearchPage:
    """Find what was said. Of an agent that isn't there, or is another tenant's, nothing is found."""
    cursor = await tx.execute(_SEARCH, search_parameters(agent_id, query, window))
    rows = await cursor.fetchall()
    return SearchPage(
        tuple(_read_message(**row) for row in rows if row["position"] is not None),
        rows[0]["total"],
        rows[0]["exact"],
        rows[0]["further"],
    )


async def by_words(
    tx: Transaction, agent_id: UUID, query: RecallQuery, *, at_most: int
) -> dict[int, float]:
    """Where the messages stand that hold words of the query's text, in any order and form, best first.

    Each with how much it holds of them: rare words count for more, and 1 is about all. They are indexed a moment
    after their turn; until then they aren't found.
    """
    return dict(
        await fetch_all(
            tx,
            lambda found_at, held: (found_at, held),
            """SELECT found_at, held FROM weigh_messages(
                   %(agent_id)s, %(text)s, %(since)s, %(until)s, %(roles)s, %(before)s, %(at_most)s,
                   %(candidates)s)""",
            {
                **search_parameters(agent_id, query, SearchWindow(at_most)),
                "at_most": at_most,
                "candidates": MOST_CANDIDATES,
            },
        )
    )


async def at_positions(tx: Transaction, agent_id: UUID, positions: Sequence[int]) -> list[Entry]:
    query = f"""SELECT {_COLUMNS} FROM unnest(%s::bigint[]) WITH ORDINALITY p (position, place)
                JOIN {_FROM} ON m.agent_id = %s AND m.position = p.position ORDER BY p.place"""
    return await fetch_all(tx, _read_message, query, [list(positions), agent_id])


async def count_and_positions(
    tx: Transaction, agent_id: UUID, query: RecallQuery, window: SearchWindow
) -> tuple[int, bool, list[int]]:
    """How many messages match, whether that is exact, and where in the history they stand."""
    return await fetch_one(
        tx,
        lambda total, exact, positions: (total, exact, positions),
        f"SELECT total, exact, positions FROM {MATCHES}",
        search_parameters(agent_id, query, window),
    )


def search_parameters(agent_id: UUID, query: RecallQuery, window: SearchWindow) -> dict[str, Any]:
    after = window.after
    return {
        "agent_id": agent_id,
        "text": query.text,
        "any_case": query.ignore_case,
        "since": query.since,
        "until": query.until,
        "roles": list(query.roles),
        "before": query.before,
        "newest_first": query.text is not None,
        "after_time": after.created_at if after else None,
        "after_position": after.position if after else None,
        "skip": window.offset,
        "take": window.limit,
        "count_to": window.count_to,
    }


def _read_message(**row: Any) -> Entry:  # noqa: ANN401 - of the row
    """Read a row of the history with the call that the message made, if any.

    Only a prompt needs the provider fields, which may be long: only `queue` reads them.
    """
    call = None
    if row["call_id"] is not None:
        call = CallRecord(
            call=FunctionCall(row["call_id"], row["name"], row["arguments"]),
            state=row["state"],
            result=row["result"],
            finished_at=row["finished_at"],
            waits_for=row["waits_for"],
            answer=row["answer"],
        )
    return Entry(
        position=row["position"],
        role=row["role"],
        text=row["content"],
        thought=row["thought"],
        tokens=row["tokens"],
        created_at=row["created_at"],
        call=call,
        fields=ProviderFields(**row["fields"]) if row.get("fields") else None,
        chat=row["chat"],
        chat_note=row["chat_note"],
        pictures=pictures.from_json(row["pictures"]),
        expires_at=row["expires_at"],
    )
