"""The lease on an agent: who may write for it, in which epoch.

It lives on the agent's state row beside the turn counters, so that "is there more to do?" and "then I release it"
are one decision on one row, which a message posted meanwhile can't slip between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memserver.errors import LeaseLost
from memserver.storage.database import Transaction
from memserver.storage.inbox import TURN_COLUMNS, TurnRow, turn_from_row
from memserver.storage.snapshots import SNAPSHOT_COLUMNS, AgentSnapshot, snapshot_from_row

TURNS_CHANNEL = "memserver_turns"
"""NOTIFY channel; the payload is "agent-id turn"."""

RELEASED_CHANNEL = "memserver_released"
"""NOTIFY channel: a process that ends has let an agent go; the payload is "agent-id tenant"."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for one agent: who holds it, in which epoch."""

    agent_id: UUID
    tenant: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimedTurn:
    """A turn and the lease to work it with; of the agent everything that it needs, apart from the queue."""

    lease: Lease
    turn: TurnRow
    snapshot: AgentSnapshot


# The addition stands apart: under row-level security a comparison that could raise, as an addition may, is
# not looked up in an index, and all turns that the agent ever had would be read.
_ACQUIRE = f"""
WITH s AS (
    UPDATE agent_state SET
        lease_owner = %(worker)s,
        lease_epoch = lease_epoch
            + CASE WHEN lease_owner IS NOT DISTINCT FROM %(worker)s THEN 0 ELSE 1 END,
        lease_expires_at = now() + make_interval(secs => %(seconds)s)
    WHERE agent_id = %(agent_id)s AND done_turn + 1 < next_turn AND NOT paused
      AND (lease_owner IS NULL OR lease_owner = %(worker)s OR lease_expires_at < now())
    RETURNING *, done_turn + 1 AS this_turn
), t AS (
    UPDATE turns SET state = CASE WHEN turns.state = 'done' THEN 'done' ELSE 'running' END, epoch = s.lease_epoch, attempts = attempts + 1,
                     started_at = coalesce(turns.started_at, now())
    FROM s WHERE turns.agent_id = s.agent_id AND turns.turn = s.this_turn
    RETURNING turns.*
)
SELECT {SNAPSHOT_COLUMNS}, {TURN_COLUMNS}
FROM s JOIN t ON t.agent_id = s.agent_id JOIN agents a ON a.id = s.agent_id
"""


async def acquire(
    tx: Transaction, agent_id: UUID, worker: str, seconds: float
) -> ClaimedTurn | None:
    """Take the agent's lease and its next turn, if there is one and nobody else serves the agent.

    A lease that has expired is taken over and its epoch grows; a turn that was left running is taken
    up again where it stood. One that was cancelled before its place came has ended already.
    """
    parameters = {"agent_id": agent_id, "worker": worker, "seconds": seconds}
    row = await (await tx.execute(_ACQUIRE, parameters)).fetchone()
    if row is None:
        return None
    lease = Lease(row["agent_id"], row["tenant"], row["lease_owner"], row["lease_epoch"])
    return ClaimedTurn(lease, turn_from_row(row), snapshot_from_row(row))


async def release(tx: Transaction, lease: Lease) -> None:
    """Let another worker take the agent at once. Raises LeaseLost if it isn't ours any more.

    The turn that is given back was no attempt: it has killed nobody.
    """
    cursor = await tx.execute(
        """WITH held AS (
               UPDATE agent_state SET lease_owner = NULL
               WHERE agent_id = %s AND lease_owner = %s AND lease_epoch = %s
               RETURNING agent_id, done_turn + 1 AS turn
           ), again AS (
               UPDATE turns t SET attempts = greatest(attempts - 1, 0) FROM held
               WHERE t.agent_id = held.agent_id AND t.turn = held.turn AND t.state = 'running'
           )
           SELECT 1 FROM held""",
        [lease.agent_id, lease.owner, lease.epoch],
    )
    if await cursor.fetchone() is None:
        raise lease_lost()


async def renew(
    tx: Transaction, worker: str, agents: Sequence[UUID], seconds: float
) -> frozenset[UUID]:
    """Prolong the leases that the worker still holds; returns which agents those are."""
    cursor = await tx.execute(
        "SELECT renew_leases(%s, %s, %s) AS agent_id", [worker, list(agents), seconds]
    )
    return frozenset(row["agent_id"] for row in await cursor.fetchall())


async def notify(tx: Transaction, notices: Sequence[tuple[str, str]]) -> None:
    """Say to every process that listens what is to be said over each channel, in this order, once this is committed."""
    channels, payloads = zip(*notices, strict=True)
    await tx.execute(
        "SELECT pg_notify(channel, payload) FROM unnest(%s::text[], %s::text[]) AS n (channel, payload)",
        [list(channels), list(payloads)],
    )


def lease_lost() -> LeaseLost:
    """Another worker serves the agent by now; nothing was written."""
    return LeaseLost("Another worker took the agent over.")
