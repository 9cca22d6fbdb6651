"""The lease on an agent and the writes of a turn, each of which checks the lease's epoch.

The lease lives on the agent's state row beside the turn counters, so that "is there more to do?" and
"then I give it up" are one decision on one row, which a message posted meanwhile can't slip between.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Json, Jsonb

from memserver.errors import LeaseLost
from memserver.messages import JsonObject, Message, Section, Usage
from memserver.storage.agents import Agent
from memserver.storage.database import Transaction
from memserver.storage.inbox import TURN_COLUMNS, Turn, turn_from_row
from memserver.storage.tools import GRANTS_COLUMN, Grant, grants_from_row

TURNS_CHANNEL = "memserver_turns"
"""NOTIFY channel; the payload is "agent-id turn"."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for one agent: who holds it, in which epoch."""

    agent_id: UUID
    tenant: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class State:
    """The counters of an agent, as they were when the turn was taken up.

    The `stats_` ones are what the prompt says of the memory. That of messages is a snapshot, renewed with
    an edit or an eviction only, so that the prompt's beginning stays the same between those; that of
    passages changes with the collections that the agent reads. `token_scale` is the
    model's tokens for each one that we count; None until its usage has shown that, and again for another
    model.
    """

    queue_start: int
    pressure_warned: bool
    token_scale: float | None
    message_count: int
    stats_messages: int
    stats_passages: int
    stats_edited_at: datetime


@dataclass(frozen=True, slots=True)
class ClaimedTurn:
    """Everything about an agent that a turn needs, apart from its queue."""

    lease: Lease
    turn: Turn
    agent: Agent
    state: State
    sections: tuple[Section, ...]
    summary: str
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class StepCommit:
    """What a turn adds to the history, and how it stands after that.

    `model` is the one that the agent named when the turn was taken up: `token_scale` belongs to it.
    `stop_reason` of a turn that has not ended: why it ends when the pressure alert's steps are over.
    `pressure_warned` counts for the queue from `queue_start` on: an eviction beside the turn begins anew.
    `paused`: its last call waits for somebody's answer; the lease is given up until that comes.
    """

    turn: Turn
    model: str | None
    messages: Sequence[Message]
    steps: int
    usage: Usage
    queue_start: int
    pressure_warned: bool
    token_scale: float | None
    ended: bool = False
    paused: bool = False
    stop_reason: str | None = None
    error: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Eviction:
    """A new start of the queue, and the summary of all that lies before it."""

    old_start: int
    new_start: int
    summary: str
    tokens: int
    evicted: int
    method: str
    failure: str | None


# What a turn and a look at the context both read of an agent.
CONTEXT_COLUMNS = f"""
    {GRANTS_COLUMN},
    a.id, a.name, a.model, a.system_prompt, a.options, a.metadata, a.collection_id,
    a.created_at AS agent_created_at, a.updated_at,
    s.agent_id, s.tenant, s.lease_owner, s.lease_epoch, s.queue_start, s.pressure_warned,
    CASE WHEN s.token_scale_model IS NOT DISTINCT FROM a.model THEN s.token_scale END AS token_scale,
    s.message_count, s.stats_messages,
    (SELECT sum(c.passage_count)::bigint FROM collections_of(a.id) c) AS stats_passages,
    greatest(s.stats_edited_at,
             (SELECT max(c.edited_at) FROM collections_of(a.id) c)) AS stats_edited_at,
    (SELECT coalesce(json_agg(json_build_object(
                'name', l.name, 'text', x.content, 'limit', x.character_limit,
                'description', x.description, 'read_only', l.read_only) ORDER BY l.place), '[]')
     FROM agent_sections l JOIN sections x ON x.id = l.section_id
     WHERE l.agent_id = s.agent_id) AS sections,
    (SELECT json_build_object('text', y.text, 'failure', y.failure) FROM summaries y
     WHERE y.agent_id = s.agent_id ORDER BY y.until DESC LIMIT 1) AS summary
"""

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
    UPDATE turns SET state = 'running', epoch = s.lease_epoch, attempts = attempts + 1,
                     started_at = coalesce(turns.started_at, now())
    FROM s WHERE turns.agent_id = s.agent_id AND turns.turn = s.this_turn
    RETURNING turns.*
)
SELECT {CONTEXT_COLUMNS}, {TURN_COLUMNS}
FROM s JOIN t ON t.agent_id = s.agent_id JOIN agents a ON a.id = s.agent_id
"""

_COMMIT_STEP = """
WITH held AS (
    UPDATE agent_state SET
        message_count = message_count + cardinality(%(positions)s::bigint[]),
        pressure_warned = CASE WHEN queue_start = %(queue_start)s THEN %(pressure_warned)s
                               ELSE pressure_warned END,
        token_scale = %(token_scale)s,
        token_scale_model = %(model)s,
        done_turn = CASE WHEN %(ended)s THEN %(turn)s ELSE done_turn END,
        paused = %(paused)s,
        lease_owner = CASE WHEN %(paused)s OR %(ended)s AND next_turn = %(turn)s + 1 THEN NULL
                           ELSE lease_owner END
    WHERE agent_id = %(agent_id)s AND lease_owner = %(worker)s AND lease_epoch = %(epoch)s
    RETURNING agent_id, tenant, lease_owner IS NULL AS released
), said AS (
    INSERT INTO messages
        (agent_id, position, tenant, role, content, thought, tokens, created_at, fields)
    SELECT held.agent_id, m.position, held.tenant, m.role, m.content, m.thought, m.tokens, m.at,
           m.fields::jsonb
    FROM held, unnest(%(positions)s::bigint[], %(roles)s::text[], %(texts)b::text[],
                      %(thoughts)b::text[], %(tokens)s::integer[], %(times)s::timestamptz[],
                      %(fields)b::text[])
         AS m (position, role, content, thought, tokens, at, fields)
), called AS (
    INSERT INTO tool_calls
        (agent_id, position, tenant, call_id, name, arguments, state, result, epoch, finished_at,
         waits_for)
    SELECT held.agent_id, c.position, held.tenant, c.call_id, c.name, c.arguments, c.state,
           c.result, %(epoch)s, c.finished_at, c.waits_for
    FROM held, unnest(%(call_positions)s::bigint[], %(call_ids)s::text[], %(names)s::text[],
                      %(arguments)b::json[], %(states)s::text[], %(results)b::text[],
                      %(finished)s::timestamptz[], %(waits_for)s::text[])
         AS c (position, call_id, name, arguments, state, result, finished_at, waits_for)
), turn AS (
    UPDATE turns SET
        steps = %(steps)s,
        prompt_tokens = %(prompt_tokens)s,
        completion_tokens = %(completion_tokens)s,
        cached_tokens = %(cached_tokens)s,
        state = CASE WHEN %(paused)s THEN 'requires_action'
                     WHEN NOT %(ended)s THEN 'running'
                     WHEN %(error)s::jsonb IS NULL THEN 'done' ELSE 'failed' END,
        stop_reason = %(stop_reason)s,
        error = %(error)s,
        finished_at = CASE WHEN %(ended)s THEN now() END
    FROM held WHERE turns.agent_id = held.agent_id AND turns.turn = %(turn)s
)
SELECT released,
       CASE WHEN %(notify)s
            THEN pg_notify('memserver_turns', %(agent_id)s::text || ' ' || %(turn)s::text) END
FROM held
"""


_EVICT = """
WITH held AS (
    UPDATE agent_state SET queue_start = %(new_start)s, pressure_warned = false,
        stats_messages = message_count,
        stats_edited_at = memory_edited_at
    WHERE agent_id = %(agent_id)s AND queue_start = %(old_start)s
      AND (%(owner)s::text IS NULL
           OR lease_owner = %(owner)s AND lease_epoch = %(epoch)s)
    RETURNING agent_id, tenant
)
INSERT INTO summaries (agent_id, until, tenant, text, tokens, evicted, method, failure)
SELECT agent_id, %(new_start)s, tenant, %(summary)s, %(tokens)s, %(evicted)s, %(method)s,
       %(failure)s
FROM held
"""


async def acquire(
    tx: Transaction, agent_id: UUID, worker: str, seconds: float
) -> ClaimedTurn | None:
    """Take the agent's lease and its next turn, if there is one and nobody else serves the agent.

    A lease that has expired is taken over and its epoch grows; a turn that was left running is taken
    up again where it stood.
    """
    parameters = {"agent_id": agent_id, "worker": worker, "seconds": seconds}
    row = await (await tx.execute(_ACQUIRE, parameters)).fetchone()
    return None if row is None else _claimed_turn(row)


async def commit_step(tx: Transaction, lease: Lease, change: StepCommit) -> bool:
    """Add to the history and move the turn on, all at once.

    Returns:
        Whether the lease was given up, since the turn waits for somebody, or has ended and nothing
        else waits.

    Raises:
        LeaseLost: another worker serves the agent; nothing was written.
    """
    row = await (await tx.execute(_COMMIT_STEP, _step_parameters(lease, change))).fetchone()
    if row is None:
        raise LeaseLost("Another worker took the agent over.")
    return bool(row["released"])


async def close_call(tx: Transaction, lease: Lease, message: Message) -> None:
    """Store the state and the result that a call written earlier has now.

    Raises:
        LeaseLost: another worker serves the agent; nothing was written.
    """
    assert message.call is not None
    cursor = await tx.execute(
        """WITH held AS (
               SELECT agent_id FROM agent_state
               WHERE agent_id = %(agent_id)s AND lease_owner = %(owner)s AND lease_epoch = %(epoch)s
               FOR UPDATE
           ), counted AS (
               UPDATE messages m SET tokens = %(tokens)s FROM held
               WHERE m.agent_id = held.agent_id AND m.position = %(position)s
           )
           UPDATE tool_calls c SET state = %(state)s, result = %(result)s, epoch = %(epoch)s,
               finished_at = %(finished_at)s
           FROM held WHERE c.agent_id = held.agent_id AND c.position = %(position)s""",
        {
            "agent_id": lease.agent_id,
            "owner": lease.owner,
            "epoch": lease.epoch,
            "position": message.position,
            "tokens": message.tokens,
            "state": message.call.state,
            "result": message.call.result,
            "finished_at": message.call.finished_at,
        },
    )
    if cursor.rowcount == 0:
        raise LeaseLost("Another worker took the agent over.")


async def evict(
    tx: Transaction, agent_id: UUID, eviction: Eviction, lease: Lease | None = None
) -> bool:
    """Move the start of the queue and store the summary of what lies before it, together.

    Also renews what the prompt says of the memory, and lets the next pressure alert come.

    Args:
        tx: in the agent's tenant's scope.
        agent_id: whose queue.
        eviction: what goes.
        lease: a turn's; None where no turn evicts.

    Returns:
        Whether it was done: the queue may start elsewhere by now.

    Raises:
        LeaseLost: another worker serves the agent.
    """
    parameters = {
        "agent_id": agent_id,
        "owner": lease.owner if lease else None,
        "epoch": lease.epoch if lease else None,
        "old_start": eviction.old_start,
        "new_start": eviction.new_start,
        "summary": eviction.summary,
        "tokens": eviction.tokens,
        "evicted": eviction.evicted,
        "method": eviction.method,
        "failure": eviction.failure,
    }
    cursor = await tx.execute(_EVICT, parameters)
    if cursor.rowcount > 0:
        return True
    if lease is not None:
        held = await tx.execute(
            """SELECT 1 FROM agent_state
               WHERE agent_id = %(agent_id)s AND lease_owner = %(owner)s
                 AND lease_epoch = %(epoch)s""",
            parameters,
        )
        if await held.fetchone() is None:
            raise LeaseLost("Another worker took the agent over.")
    return False


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
        raise LeaseLost("Another worker took the agent over.")


async def renew(
    tx: Transaction, worker: str, agents: Sequence[UUID], seconds: float
) -> frozenset[UUID]:
    """Prolong the leases that the worker still holds; returns which agents those are."""
    cursor = await tx.execute(
        "SELECT renew_leases(%s, %s, %s) AS agent_id", [worker, list(agents), seconds]
    )
    return frozenset(row["agent_id"] for row in await cursor.fetchall())


def state_from_row(row: dict[str, Any]) -> State:
    """Read the state's part of CONTEXT_COLUMNS."""
    return State(**{name: row[name] for name in State.__dataclass_fields__})


def agent_from_row(row: dict[str, Any]) -> Agent:
    """Read the agent's part of CONTEXT_COLUMNS."""
    same = ("id", "tenant", "name", "model", "system_prompt", "options", "metadata")
    return Agent(
        **{name: row[name] for name in same},
        collection_id=row["collection_id"],
        created_at=row["agent_created_at"],
        updated_at=row["updated_at"],
    )


def sections_from_row(row: dict[str, Any]) -> tuple[Section, ...]:
    """Read the working context of CONTEXT_COLUMNS."""
    return tuple(Section(**section) for section in row["sections"])


def summary_from_row(row: dict[str, Any]) -> str:
    """Read the newest summary of CONTEXT_COLUMNS; empty if there is none."""
    return str(row["summary"]["text"]) if row["summary"] else ""


def _claimed_turn(row: dict[str, Any]) -> ClaimedTurn:
    return ClaimedTurn(
        lease=Lease(row["agent_id"], row["tenant"], row["lease_owner"], row["lease_epoch"]),
        turn=turn_from_row(row),
        agent=agent_from_row(row),
        state=state_from_row(row),
        sections=sections_from_row(row),
        summary=summary_from_row(row),
        grants=grants_from_row(row),
    )


def _step_parameters(lease: Lease, change: StepCommit) -> dict[str, Any]:
    messages = change.messages
    calls = [(message.position, message.call) for message in messages if message.call]
    return {
        "agent_id": lease.agent_id,
        "worker": lease.owner,
        "epoch": lease.epoch,
        "turn": change.turn.turn,
        "steps": change.steps,
        "prompt_tokens": change.usage.prompt_tokens,
        "completion_tokens": change.usage.completion_tokens,
        "cached_tokens": change.usage.cached_tokens,
        "queue_start": change.queue_start,
        "pressure_warned": change.pressure_warned,
        "token_scale": change.token_scale,
        "model": change.model,
        "ended": change.ended,
        "paused": change.paused,
        "stop_reason": change.stop_reason,
        "error": Jsonb(change.error) if change.error is not None else None,
        "notify": change.turn.posted_by != lease.owner,
        "positions": [message.position for message in messages],
        "roles": [message.role for message in messages],
        "texts": [message.text for message in messages],
        "thoughts": [message.thought for message in messages],
        "tokens": [message.tokens for message in messages],
        "times": [message.created_at for message in messages],
        "fields": [
            json.dumps(asdict(message.fields)) if message.fields else None for message in messages
        ],
        "call_positions": [position for position, _ in calls],
        "call_ids": [record.call.id for _, record in calls],
        "names": [record.call.name for _, record in calls],
        "arguments": [Json(dict(record.call.arguments)) for _, record in calls],
        "states": [record.state for _, record in calls],
        "results": [record.result for _, record in calls],
        "finished": [record.finished_at for _, record in calls],
        "waits_for": [record.waits_for for _, record in calls],
    }
