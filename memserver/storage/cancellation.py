"""Ends a turn from outside, whichever process runs it: the end is committed here, and the run can write nothing after that."""

from uuid import UUID

from memserver.errors import TurnHasEnded
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN, TURN_COLUMNS, TurnRow, get_turn, turn_from_row

STOPS_CHANNEL = "memserver_stops"
"""NOTIFY channel: a turn was ended from outside; the payload is "agent-id turn", of a deleted agent "agent-id 0"."""
CANCELLED = "cancelled"
"""The stop reason."""
RESULT_TOKENS = 16
"""What the result of a call that is ended adds to its entry, about."""

_CLOSE_CALLS = """
WITH closed AS (
    UPDATE tool_calls SET state = 'interrupted', finished_at = now(),
        result = CASE WHEN state = 'waiting' THEN 'This was cancelled before it ran.'
                      ELSE 'The turn was cancelled while this ran; whether it took effect is not known.' END
    WHERE agent_id = %(agent_id)s AND position >= %(first)s AND position < %(end)s
      AND state IN ('pending', 'running', 'waiting')
    RETURNING agent_id, position
)
UPDATE messages m SET tokens = tokens + %(tokens)s FROM closed
WHERE m.agent_id = closed.agent_id AND m.position = closed.position
"""


async def cancel(
    tx: Transaction, agent_id: UUID, turn: int, *, if_unanswered: bool = False
) -> TurnRow:
    """End a turn that waits or runs. What it has committed stays; its calls without a result are interrupted.

    The agent's lease is taken from the worker that runs the turn, so that of cancelling it and of its own next commit one
    alone takes effect. Who takes the lease next passes over what has ended. (That moves `done_turn`, which waits for
    locks that a run may hold until it is cut off.)

    `if_unanswered`: leave one alone that has answered, and saves what it needs before memory runs short. Returns the turn as
    it ended; also one that was cancelled before.

    Raises:
        NotFound: no such turn.
        TurnHasEnded: otherwise than by this.
    """
    cursor = await tx.execute(
        "SELECT done_turn FROM agent_state WHERE agent_id = %s FOR UPDATE", [agent_id]
    )
    state = await cursor.fetchone()
    found = await get_turn(tx, agent_id, turn)
    if found.ended and found.stop_reason == CANCELLED:
        return found
    _check(found, if_unanswered)
    assert state is not None
    if turn == state["done_turn"] + 1:
        first = found.first_position
        places = {"agent_id": agent_id, "first": first, "end": first + PLACES_PER_TURN}
        await tx.execute(_CLOSE_CALLS, {**places, "tokens": RESULT_TOKENS})
        await tx.execute(
            "UPDATE agent_state SET paused = false, lease_owner = NULL WHERE agent_id = %s",
            [agent_id],
        )
    cursor = await tx.execute(
        f"""UPDATE turns t SET state = 'done', stop_reason = %s, finished_at = now()
            WHERE t.agent_id = %s AND t.turn = %s RETURNING {TURN_COLUMNS}""",
        [CANCELLED, agent_id, turn],
    )
    row = await cursor.fetchone()
    assert row is not None
    await notify_stop(tx, agent_id, turn)
    return turn_from_row(row)


def _check(found: TurnRow, if_unanswered: bool) -> None:
    if found.ended or (if_unanswered and found.stop_reason is not None):
        raise TurnHasEnded(
            f"The turn {found.turn} has ended already ({found.stop_reason}), so it can't be cancelled.",
            hint="GET /v1/agents/{agent}/turns/{turn} says how.",
        )


async def notify_stop(tx: Transaction, agent_id: UUID, turn: int = 0) -> None:
    """Have every process end the run of a turn, or all of a deleted agent, once this is committed."""
    await tx.execute("SELECT pg_notify(%s, %s)", [STOPS_CHANNEL, f"{agent_id} {turn}"])
