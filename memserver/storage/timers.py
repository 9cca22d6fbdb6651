"""Timers: texts that come to an agent as events at their times. Leaves what that means to `memory.timers`."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.listing import Cut


@dataclass(frozen=True, slots=True)
class Timer:
    """One that has not gone off yet."""

    id: UUID
    agent_id: UUID
    text: str
    due: datetime
    created_at: datetime


_COLUMNS = "id, agent_id, text, due, created_at"


async def add(tx: Transaction, tenant: str, agent_id: UUID, text: str, due: datetime) -> Timer:
    """Store one; the agent is there."""
    cursor = await tx.execute(
        f"""INSERT INTO timers (id, agent_id, tenant, text, due) VALUES (%s, %s, %s, %s, %s)
            RETURNING {_COLUMNS}""",
        [new_id(), agent_id, tenant, text, due],
    )
    row = await cursor.fetchone()
    assert row is not None
    return Timer(**row)


async def count(tx: Transaction, agent_id: UUID) -> int:
    """How many an agent has."""
    cursor = await tx.execute("SELECT count(*) FROM timers WHERE agent_id = %s", [agent_id])
    row = await cursor.fetchone()
    assert row is not None
    number: int = row["count"]
    return number


async def find(tx: Transaction, timer_id: UUID, agent_id: UUID | None = None) -> Timer | None:
    """A timer, if it is there; with an agent: if it is the agent's."""
    cursor = await tx.execute(
        f"SELECT {_COLUMNS} FROM timers WHERE id = %s AND agent_id = coalesce(%s, agent_id)",
        [timer_id, agent_id],
    )
    row = await cursor.fetchone()
    return None if row is None else Timer(**row)


async def list_page(tx: Transaction, agent_id: UUID, cut: Cut) -> list[Timer]:
    """A page of an agent's timers, in the order in which they were set."""
    cursor = await tx.execute(
        f"""SELECT {_COLUMNS} FROM timers
            WHERE agent_id = %(agent_id)s AND {cut.behind("id")} {cut.by("id")}""".encode(),
        {"agent_id": agent_id, **cut.parameters},
    )
    return [Timer(**row) for row in await cursor.fetchall()]


async def remove(tx: Transaction, timer_id: UUID) -> None:
    """Remove one: it doesn't go off any more."""
    await tx.execute("DELETE FROM timers WHERE id = %s", [timer_id])
