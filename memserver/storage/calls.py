"""Calls that wait for somebody's answer. What the answer means is the turn's business."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memserver.errors import Conflict, NotFound
from memserver.messages import CallRecord, FunctionCall, JsonObject
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN, TURN_COLUMNS, TurnRow, turn_from_row
from memserver.storage.rows import PageQuery, fetch_one, paginate

AUTOMATIC = "auto_"
"""How the id of a call begins that the server made, and not the model."""


def is_automatic(record: CallRecord) -> bool:
    """Whether the server made this call, and not the model."""
    return record.call.id.startswith(AUTOMATIC)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that waits, and whose it is; `position` is its place in the agent's history.

    `of_request`: its tool is one that the client's request brought to this turn alone.
    """

    agent_id: UUID
    position: int
    record: CallRecord
    created_at: datetime
    of_request: bool

    @property
    def turn(self) -> int:
        """The number of the turn that waits with it."""
        return self.position // PLACES_PER_TURN


_COLUMNS = f"""c.agent_id, c.position, c.call_id, c.name, c.arguments, c.state, c.waits_for, c.answer,
    c.created_at, coalesce((SELECT t.request->'names' ? c.name FROM turns t WHERE t.agent_id = c.agent_id
                            AND t.turn = c.position / {PLACES_PER_TURN}), false) AS of_request"""


async def list_waiting(
    tx: Transaction, page: PageQuery, *, agent_id: UUID | None = None
) -> list[OpenCall]:
    """A page of the calls that wait for an answer, at most one an agent, by the agent's age."""
    query = f"""SELECT {_COLUMNS} FROM tool_calls c
                WHERE c.state = 'waiting' AND c.answer IS NULL
                  AND (%(agent_id)s::uuid IS NULL OR c.agent_id = %(agent_id)s)"""
    return await paginate(tx, _waiting, page, query, {"agent_id": agent_id}, by="c.agent_id")


async def overdue(tx: Transaction, seconds: float, at_most: int) -> list[tuple[UUID, str, str]]:
    """Calls of all tenants that wait for longer than so many seconds: agent, tenant and the call's id."""
    cursor = await tx.execute("SELECT * FROM calls_overdue(%s, %s)", [seconds, at_most])
    return [(row["agent_id"], row["tenant"], row["call_id"]) for row in await cursor.fetchall()]


async def get(tx: Transaction, agent_id: UUID, call_id: str) -> OpenCall:
    """A call, whether it waits or not. Raises NotFound: the agent has made no such call."""
    return await fetch_one(
        tx,
        _waiting,
        f"""SELECT {_COLUMNS} FROM tool_calls c WHERE c.agent_id = %s AND c.call_id = %s
            ORDER BY c.position DESC LIMIT 1""",
        [agent_id, call_id],
        NotFound(
            f"The agent has made no call {call_id}.",
            hint="GET /v1/calls/waiting lists those that wait.",
        ),
    )


async def lock(
    tx: Transaction, agent_id: UUID, call_id: str, *, key: str | None = None
) -> OpenCall:
    """A call that waits for an answer; until the transaction ends nobody else answers it.

    With a key it may also be one that was answered under that key.

    Raises:
        NotFound: the agent has made no such call.
        Conflict: it doesn't wait, or was answered already.
    """
    await tx.execute("SELECT 1 FROM agent_state WHERE agent_id = %s FOR UPDATE", [agent_id])
    call = await get(tx, agent_id, call_id)
    given = call.record.answer
    if given is not None and key is not None and given.get("key") == key:
        return call
    if call.record.state != "waiting" or given is not None:
        expired = given is not None and given.get("expired")
        raise Conflict(
            f"The call {call_id} waits for no answer"
            + (" any more: its time was over." if expired else "."),
            hint="GET /v1/agents/{agent}/messages shows what came of it.",
        )
    return call


async def answer(
    tx: Transaction,
    call: OpenCall,
    given: JsonObject,
    worker: str,
    request: JsonObject | None = None,
) -> TurnRow:
    """Store the answer to a call that `lock` gave; its turn goes back to the head of the inbox.

    From now on a request that brings the answer is the turn's; without one a tool need not be called any more.

    Returns:
        The turn, which is resumed by the worker that takes the agent's lease.
    """
    await tx.execute(
        "UPDATE tool_calls SET answer = %s WHERE agent_id = %s AND position = %s",
        [Jsonb(given), call.agent_id, call.position],
    )
    await tx.execute("UPDATE agent_state SET paused = false WHERE agent_id = %s", [call.agent_id])
    # It was no crash that it has to be taken up again.
    cursor = await tx.execute(
        f"""UPDATE turns t SET state = 'waiting', attempts = 0, posted_by = %(worker)s,
                request = CASE WHEN %(request)s::jsonb IS NULL THEN t.request - 'choice'
                    WHEN t.request->'names' @> (%(request)s::jsonb->'names')
                    THEN %(request)s::jsonb || jsonb_build_object('names', t.request->'names')
                    ELSE %(request)s::jsonb || jsonb_build_object('names',
                        coalesce(t.request->'names', '[]') || (%(request)s::jsonb->'names'))
                    END || jsonb_build_object('since', jsonb_build_object('steps', t.steps,
                        'prompt_tokens', t.prompt_tokens, 'completion_tokens', t.completion_tokens,
                        'cached_tokens', t.cached_tokens))
            WHERE t.agent_id = %(agent_id)s AND t.turn = %(turn)s RETURNING {TURN_COLUMNS}""",
        {
            "worker": worker,
            "agent_id": call.agent_id,
            "turn": call.turn,
            "request": None if request is None else Jsonb(request),
        },
    )
    row = await cursor.fetchone()
    assert row is not None
    return turn_from_row(row)


async def made_in(
    tx: Transaction, agent_id: UUID, start: int, end: int
) -> Sequence[tuple[str, bool]]:
    """The model's calls that ended between two positions of the history: name, and whether it succeeded."""
    cursor = await tx.execute(
        """SELECT name, state = 'done' AS done FROM tool_calls
           WHERE agent_id = %s AND position >= %s AND position < %s
             AND state NOT IN ('pending', 'running', 'waiting') AND NOT starts_with(call_id, %s)
           ORDER BY position""",
        [agent_id, start, end, AUTOMATIC],
    )
    return [(row["name"], row["done"]) for row in await cursor.fetchall()]


def _waiting(**row: Any) -> OpenCall:  # noqa: ANN401
    call = FunctionCall(row["call_id"], row["name"], row["arguments"])
    record = CallRecord(call, row["state"], waits_for=row["waits_for"], answer=row["answer"])
    return OpenCall(row["agent_id"], row["position"], record, row["created_at"], row["of_request"])
