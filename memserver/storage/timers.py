"""Timers: texts that come to an agent as events at their times. Leaves what that means to `memory.timers`."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.rows import PageQuery, fetch_one, fetch_optional, fetch_value, paginate


@dataclass(frozen=True, slots=True)
class TimerRow:
    """A timer that has not gone off yet."""

    id: UUID
    agent_id: UUID
    text: str
    due: datetime
    created_at: datetime


_COLUMNS = "id, agent_id, text, due, created_at"


async def add(tx: Transaction, tenant: str, agent_id: UUID, text: str, due: datetime) -> TimerRow:
    query = f"""INSERT INTO timers (id, agent_id, tenant, text, due) VALUES (%s, %s, %s, %s, %s)
                RETURNING {_COLUMNS}"""
    return await fetch_one(tx, TimerRow, query, [new_id(), agent_id, tenant, text, due])


async def count(tx: Transaction, agent_id: UUID) -> int:
    query = "SELECT count(*) FROM timers WHERE agent_id = %s"
    return int(await fetch_value(tx, query, [agent_id]))


async def find(tx: Transaction, timer_id: UUID, agent_id: UUID | None = None) -> TimerRow | None:
    """A timer, if it is there; with an agent: if it is the agent's."""
    query = f"SELECT {_COLUMNS} FROM timers WHERE id = %s AND agent_id = coalesce(%s, agent_id)"
    return await fetch_optional(tx, TimerRow, query, [timer_id, agent_id])


async def list_page(tx: Transaction, agent_id: UUID, page: PageQuery) -> list[TimerRow]:
    query = f"SELECT {_COLUMNS} FROM timers WHERE agent_id = %(agent_id)s"
    return await paginate(tx, TimerRow, page, query, {"agent_id": agent_id}, by="id")


async def remove(tx: Transaction, timer_id: UUID) -> None:
    await tx.execute("DELETE FROM timers WHERE id = %s", [timer_id])
