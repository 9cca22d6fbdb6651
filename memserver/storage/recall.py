"""Recall storage: reading the history. Writing it belongs to `inbox` and `leases`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memserver.messages import CallRecord, Message, ToolCall
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.leases import CONTEXT_COLUMNS

_COLUMNS = """m.position, m.role, m.content, m.thought, m.tokens, m.created_at,
    c.call_id, c.name, c.arguments, c.state, c.result, c.finished_at, c.waits_for, c.answer"""
_FROM = "messages m LEFT JOIN tool_calls c ON c.agent_id = m.agent_id AND c.position = m.position"


@dataclass(frozen=True, slots=True)
class Found:
    """One page of a search: `total` counts all that match."""

    messages: tuple[Message, ...]
    total: int


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """What to look for; absent parts match everything.

    `text` is a literal substring. `since` is inclusive and `until` exclusive. `before` leaves out
    what stands at that position of the history or later.
    """

    text: str | None = None
    ignore_case: bool = False
    since: datetime | None = None
    until: datetime | None = None
    roles: Sequence[str] = ("user", "assistant")
    before: int | None = None


async def queue(tx: Transaction, agent_id: UUID, start: int, end: int) -> list[Message]:
    """The messages from position `start` up to, but not including, `end`."""
    cursor = await tx.execute(
        f"""SELECT {_COLUMNS} FROM {_FROM}
            WHERE m.agent_id = %s AND m.position >= %s AND m.position < %s ORDER BY m.position""",
        [agent_id, start, end],
    )
    return [message_from_row(row) for row in await cursor.fetchall()]


async def history_page(
    tx: Transaction,
    agent_id: UUID,
    *,
    after: int | None = None,
    before: int | None = None,
    limit: int,
) -> list[Message]:
    """A page of what the agent has taken up so far: oldest first behind `after`, else newest first.

    What still waits in the inbox isn't part of the history yet, so that the history only ever grows
    at its end and a cursor stays right.
    """
    order = "ASC" if after is not None else "DESC"
    cursor = await tx.execute(
        f"""SELECT {_COLUMNS} FROM {_FROM} JOIN agent_state s ON s.agent_id = m.agent_id
            WHERE m.agent_id = %(agent_id)s
              AND m.position > coalesce(%(after)s::bigint, -1)
              AND m.position < coalesce(%(before)s::bigint, {2**62})
              AND m.position < ({_FIRST_WAITING}) * {PLACES_PER_TURN}
            ORDER BY m.position {order} LIMIT %(limit)s""".encode(),
        {"agent_id": agent_id, "after": after, "before": before, "limit": limit},
    )
    return [message_from_row(row) for row in await cursor.fetchall()]


_FIRST_WAITING = """SELECT CASE WHEN EXISTS (
        SELECT 1 FROM turns t WHERE t.agent_id = s.agent_id AND t.turn = s.done_turn + 1
                                AND t.started_at IS NOT NULL)
    THEN s.done_turn + 2 ELSE s.done_turn + 1 END"""


async def search(
    tx: Transaction, agent_id: UUID, query: RecallQuery, *, limit: int, offset: int
) -> Found:
    """Find what was said. Substrings come newest first, a date range alone in its own order."""
    operator = "ILIKE" if query.ignore_case else "LIKE"
    order = "DESC" if query.text is not None else "ASC"
    where = f"""m.agent_id = %(agent_id)s AND m.role = ANY (%(roles)s) AND m.content <> ''
        AND (%(pattern)s::text IS NULL OR m.content {operator} %(pattern)s)
        AND m.created_at >= coalesce(%(since)s, '-infinity'::timestamptz)
        AND m.created_at < coalesce(%(until)s, 'infinity'::timestamptz)
        AND m.position < coalesce(%(before)s::bigint, {2**62})"""
    parameters = {
        "agent_id": agent_id,
        "roles": list(query.roles),
        "pattern": None if query.text is None else f"%{_escape_like(query.text)}%",
        "since": query.since,
        "until": query.until,
        "before": query.before,
        "limit": limit,
        "offset": offset,
    }
    counted = await tx.execute(
        f"SELECT count(*) FROM messages m WHERE {where}".encode(), parameters
    )
    row = await counted.fetchone()
    assert row is not None
    if offset >= row["count"]:
        return Found((), row["count"])
    cursor = await tx.execute(
        f"""SELECT {_COLUMNS} FROM {_FROM} WHERE {where}
            ORDER BY m.created_at {order}, m.position {order}
            LIMIT %(limit)s OFFSET %(offset)s""".encode(),
        parameters,
    )
    return Found(tuple(message_from_row(row) for row in await cursor.fetchall()), row["count"])


async def context_row(tx: Transaction, agent_id: UUID) -> dict[str, Any] | None:
    """The agent, its state, working context and summary, outside of a turn; None if unknown.

    Also `queue_end`: the position behind what the agent has taken up, and `done_end`: behind its turns
    that have ended.
    """
    cursor = await tx.execute(
        f"""SELECT {CONTEXT_COLUMNS}, ({_FIRST_WAITING}) * {PLACES_PER_TURN} AS queue_end,
                (s.done_turn + 1) * {PLACES_PER_TURN} AS done_end
            FROM agent_state s JOIN agents a ON a.id = s.agent_id WHERE s.agent_id = %s""",
        [agent_id],
    )
    return await cursor.fetchone()


def message_from_row(row: dict[str, Any]) -> Message:
    """Read a row of the history with the call that the message made, if any."""
    call = None
    if row["call_id"] is not None:
        call = CallRecord(
            call=ToolCall(row["call_id"], row["name"], row["arguments"]),
            state=row["state"],
            result=row["result"],
            finished_at=row["finished_at"],
            waits_for=row["waits_for"],
            answer=row["answer"],
        )
    return Message(
        position=row["position"],
        role=row["role"],
        text=row["content"],
        thought=row["thought"],
        tokens=row["tokens"],
        created_at=row["created_at"],
        call=call,
    )


def _escape_like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
