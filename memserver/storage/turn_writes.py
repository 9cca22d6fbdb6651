"""What a turn writes: steps, calls that have ended, evictions. Each write checks the lease's epoch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memserver.messages import Entry, JsonObject, TokenUsage
from memserver.storage import pictures
from memserver.storage.database import Transaction
from memserver.storage.inbox import TurnRow
from memserver.storage.leases import Lease, lease_lost
from memserver.storage.turn_steps import ADD_STEP, NOTHING


@dataclass(frozen=True, slots=True)
class StepCommit:
    """What a turn adds to the history, and how it stands after that.

    `model` is the one that the agent named when the turn was taken up: `token_scale` belongs to it.
    `stop_reason` of a turn that has not ended: why it ends when the pressure alert's steps are over.
    `pressure_warned` counts for the queue from `queue_start` on: an eviction beside the turn starts again.
    `paused`: its last call waits for somebody's answer; the lease is released until that comes.
    `measured`: parameters of `turn_steps`.
    """

    turn: TurnRow
    model: str | None
    messages: Sequence[Entry]
    steps: int
    usage: TokenUsage
    queue_start: int
    pressure_warned: bool
    token_scale: float | None
    ended: bool = False
    paused: bool = False
    stop_reason: str | None = None
    error: JsonObject | None = None
    measured: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Eviction:
    """A new start of the queue, and the summary of all that lies before it, made of a history of some version."""

    history_version: int
    old_start: int
    new_start: int
    summary: str
    tokens: int
    evicted: int
    method: str
    failure: str | None


# Without its indentation: a statement of more than 4,096 characters is parsed by the driver at each use.
_COMMIT_STEP = " ".join(
    f"""
WITH held AS (
    UPDATE agent_state SET
        message_count = message_count + json_array_length(%(messages)s::json),
        pressure_warned = CASE WHEN queue_start = %(queue_start)s THEN %(pressure_warned)s
                               ELSE pressure_warned END,
        token_scale = %(token_scale)s,
        token_scale_model = %(model)s,
        done_turn = CASE WHEN %(ended)s THEN %(turn)s ELSE done_turn END,
        paused = %(paused)s,
        lease_owner = CASE WHEN %(paused)s OR %(ended)s AND next_turn = %(turn)s + 1 THEN NULL
                           ELSE lease_owner END
    WHERE agent_id = %(agent_id)s AND lease_owner = %(worker)s AND lease_epoch = %(epoch)s
    RETURNING agent_id, tenant, history_version, lease_owner IS NULL AS released
), said AS (
    INSERT INTO messages
        (agent_id, position, tenant, role, content, thought, tokens, created_at, fields, expires_at)
    SELECT held.agent_id, m.position, held.tenant, m.role, m.content, m.thought, m.tokens,
           m.created_at, m.fields, m.expires_at
    FROM held, json_to_recordset(%(messages)s::json)
         AS m (position bigint, role text, content text, thought text, tokens integer,
               created_at timestamptz, fields jsonb, expires_at timestamptz)
), called AS (
    INSERT INTO tool_calls
        (agent_id, position, tenant, call_id, name, arguments, state, result, epoch, finished_at,
         waits_for)
    SELECT held.agent_id, c.position, held.tenant, c.call_id, c.name, c.arguments, c.state,
           c.result, %(epoch)s, c.finished_at, c.waits_for
    FROM held, json_to_recordset(%(calls)s::json)
         AS c (position bigint, call_id text, name text, arguments json, state text, result text,
               finished_at timestamptz, waits_for text)
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
        request = CASE WHEN %(ended)s THEN request - '{{tools,form}}'::text[] ELSE request END,
        finished_at = CASE WHEN %(ended)s THEN coalesce(turns.finished_at, now()) END
    FROM held WHERE turns.agent_id = held.agent_id AND turns.turn = %(turn)s
    RETURNING turns.*
), measured AS ({ADD_STEP})
SELECT released,
       CASE WHEN %(notify)s
            THEN pg_notify('memserver_turns', %(agent_id)s::text || ' ' || %(turn)s::text) END
FROM held
""".split()
)


_EVICT = """
WITH held AS (
    UPDATE agent_state SET queue_start = %(new_start)s, pressure_warned = false,
        stats_messages = message_count,
        stats_edited_at = memory_edited_at
    WHERE agent_id = %(agent_id)s AND queue_start = %(old_start)s
      AND history_version = %(history_version)s
      AND (%(owner)s::text IS NULL
           OR lease_owner = %(owner)s AND lease_epoch = %(epoch)s)
    RETURNING agent_id, tenant
)
INSERT INTO summaries (agent_id, until, tenant, text, tokens, evicted, method, failure)
SELECT agent_id, %(new_start)s, tenant, %(summary)s, %(tokens)s, %(evicted)s, %(method)s,
       %(failure)s
FROM held
ON CONFLICT (agent_id, until) DO UPDATE SET  -- of an agent whose file an older memserver had imported
    text = excluded.text, tokens = excluded.tokens, evicted = excluded.evicted,
    method = excluded.method, failure = excluded.failure, outdated = false
"""


async def commit_step(tx: Transaction, lease: Lease, change: StepCommit) -> bool:
    """Add to the history and move the turn on, all at once.

    Returns:
        Whether the lease was released, since the turn waits for somebody, or has ended and nothing
        else waits.

    Raises:
        LeaseLost: another worker serves the agent; nothing was written.
    """
    row = await (await tx.execute(_COMMIT_STEP, _parameters(lease, change))).fetchone()
    if row is None:
        raise lease_lost()
    return bool(row["released"])


async def close_call(tx: Transaction, lease: Lease, message: Entry) -> None:
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
               UPDATE messages m SET tokens = %(tokens)s, pictures = %(pictures)s FROM held
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
            "pictures": pictures.jsonb(message.pictures),
            "state": message.call.state,
            "result": message.call.result,
            "finished_at": message.call.finished_at,
        },
    )
    if cursor.rowcount == 0:
        raise lease_lost()
    await pictures.keep(tx, lease.tenant, message.pictures)


async def evict(
    tx: Transaction, agent_id: UUID, eviction: Eviction, lease: Lease | None = None
) -> bool:
    """Move the start of the queue and store the summary of what lies before it, together.

    Also renews what the prompt says of the memory, and lets the next pressure alert come. `lease`: a turn's; None where no
    turn evicts. Returns whether it was done: the queue may start elsewhere by now, or something of it may have been deleted.

    Raises:
        LeaseLost: another worker serves the agent.
    """
    parameters = {
        "agent_id": agent_id,
        "owner": lease.owner if lease else None,
        "epoch": lease.epoch if lease else None,
        "history_version": eviction.history_version,
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
            raise lease_lost()
    return False


def _parameters(lease: Lease, change: StepCommit) -> dict[str, Any]:
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
        "messages": json.dumps([_message_row(each) for each in change.messages]),
        "calls": json.dumps([_call_row(each) for each in change.messages if each.call]),
        **change.measured,
    }


def _message_row(message: Entry) -> JsonObject:
    return {
        "position": message.position,
        "role": message.role,
        "content": message.text,
        "thought": message.thought,
        "tokens": message.tokens,
        "created_at": message.created_at.isoformat(),
        "fields": asdict(message.fields) if message.fields else None,
        "expires_at": message.expires_at.isoformat() if message.expires_at else None,
    }


def _call_row(message: Entry) -> JsonObject:
    record = message.call
    assert record is not None
    return {
        "position": message.position,
        "call_id": record.call.id,
        "name": record.call.name,
        "arguments": dict(record.call.arguments),
        "state": record.state,
        "result": record.result,
        "finished_at": record.finished_at.isoformat() if record.finished_at else None,
        "waits_for": record.waits_for,
    }
