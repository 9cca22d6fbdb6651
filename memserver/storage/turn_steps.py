"""What each step of a turn cost, and, where that is wanted, what the model was sent and replied."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic_core import to_json

from memserver.messages import JsonObject
from memserver.metering import StepMeter
from memserver.storage.database import Database, Transaction
from memserver.storage.repeating import repeat, run_beside
from memserver.storage.rows import fetch_all, fetch_value
from memserver.text import clean

MOST_TRACED = 2**20
"""Bytes of a request that is stored, or a reply: only pictures make them longer."""
FORGET_AT_ONCE = 500
FORGET_EVERY = 600


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step; times are in seconds, `position` is that of the message that it added.

    Attributes:
        at: when it was stored first.
        parts: the prompt's tokens by part.
        asking: the model; `queue`: until it was asked.
        request: the body that the model was sent; None where it wasn't kept.
    """

    step: int
    at: datetime
    position: int | None
    model: str
    parts: dict[str, int]
    memory: float
    queue: float
    asking: float
    tools: float
    database: float
    other: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    stop: str | None
    error: str | None
    request: str | None
    reply: str | None


ADD_STEP = """
    INSERT INTO turn_steps AS s (agent_id, turn, step, tenant, position, model, parts, memory, queue, asking,
        tools, database, other, prompt_tokens, completion_tokens, cached_tokens, stop, error, seconds,
        request, reply)
    SELECT turn.agent_id, turn.turn, m.step, turn.tenant, m.position, m.model, m.parts, m.memory, m.queue,
        m.asking, m.tools, m.database, m.other, m.prompt_tokens, m.completion_tokens, m.cached_tokens,
        CASE WHEN %(ended)s THEN %(stop_reason)s END, CASE WHEN %(ended)s THEN %(error)s::jsonb->>'code' END,
        CASE WHEN %(ended)s THEN extract(epoch FROM clock_timestamp() - turn.created_at) END,
        CASE WHEN held.history_version = m.history_version THEN %(traced_request)s END,
        CASE WHEN held.history_version = m.history_version THEN %(traced_reply)s END
    FROM held, turn, json_to_record(%(measured)s::json) AS m (step integer, history_version bigint, position bigint, model text, parts json,
        memory real, queue real, asking real, tools real, database real, other real,
        prompt_tokens integer, completion_tokens integer, cached_tokens integer)
    WHERE m.step IS NOT NULL
    ON CONFLICT (agent_id, turn, step) DO UPDATE SET
        memory = s.memory + excluded.memory, queue = s.queue + excluded.queue,
        asking = s.asking + excluded.asking, tools = s.tools + excluded.tools,
        database = s.database + excluded.database, other = s.other + excluded.other,
        prompt_tokens = s.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = s.completion_tokens + excluded.completion_tokens,
        cached_tokens = s.cached_tokens + excluded.cached_tokens,
        parts = CASE WHEN excluded.parts::text = '{}' THEN s.parts ELSE excluded.parts END,
        stop = excluded.stop, error = excluded.error, seconds = excluded.seconds,
        request = coalesce(excluded.request, s.request), reply = coalesce(excluded.reply, s.reply)
"""
"""A part of the statement that commits a step. One of a call that ran outside, or waited, is stored twice.

Where messages were erased after the prompt was made, it is not stored: it may have them.
"""


def parameters(
    step: int, position: int | None, model: str, measured: StepMeter, *, traced: int | None
) -> dict[str, Any]:
    """What `ADD_STEP` needs of a step that was measured.

    `traced` is the version of the history that the prompt was made of; None where no prompts are stored.
    """
    times, usage = measured.seconds, measured.usage
    row = {
        "step": step,
        "history_version": traced,
        "position": position,
        "model": model,
        "parts": measured.parts,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "asking": times.get("model", 0.0),
    }
    row |= {
        name: times.get(name, 0.0) for name in ("memory", "queue", "tools", "database", "other")
    }
    return {
        "measured": to_json(row).decode(),
        "traced_request": _text(measured.request) if traced is not None else None,
        "traced_reply": _text(measured.reply) if traced is not None else None,
    }


NOTHING: JsonObject = {"measured": None, "traced_request": None, "traced_reply": None}


def _text(exchanged: object) -> str | None:
    if exchanged is None:
        return None
    body = exchanged if isinstance(exchanged, bytes) else to_json(exchanged, bytes_mode="base64")
    return clean(body.decode(errors="replace")) if len(body) <= MOST_TRACED else None


async def read(tx: Transaction, agent_id: UUID, turn: int) -> Sequence[StepRow]:
    query = f"SELECT {', '.join(StepRow.__dataclass_fields__)} FROM turn_steps WHERE agent_id = %s AND turn = %s ORDER BY step"
    return await fetch_all(tx, StepRow, query, [agent_id, turn])


async def erase_traces(tx: Transaction, agent_id: UUID, since: int) -> None:
    """Forget what the model was sent and replied from this turn on: a later prompt repeats what was said."""
    await tx.execute(
        """UPDATE turn_steps SET request = NULL, reply = NULL
           WHERE agent_id = %s AND turn >= %s AND request IS NOT NULL""",
        [agent_id, since],
    )


async def forget_traces(database: Database, seconds: float) -> int:
    """Forget what is older than this, of all tenants; returns how many steps' it was."""
    total = 0
    while True:
        async with database.across_tenants() as tx:
            query = "SELECT forget_traces(%s, %s)"
            gone = int(await fetch_value(tx, query, [seconds, FORGET_AT_ONCE]))
        total += gone
        if gone < FORGET_AT_ONCE:
            return total


def forgetting_traces(database: Database, seconds: float) -> AbstractAsyncContextManager[None]:
    """Forget what has become older, now and then while the block runs."""

    async def forget() -> None:
        await asyncio.sleep(FORGET_EVERY)
        await forget_traces(database, seconds)

    return run_beside(repeat(forget, 0))


async def operations(database: Database, minutes: int) -> JsonObject:
    """How the server does: what the last minutes brought, and what stands in line; of all tenants together.

    What minutes brought that are over is kept, so that the next look reads the last steps only.
    """
    async with database.across_tenants() as tx:
        await tx.execute("SELECT keep_minutes(%s)", [minutes])
        found: JsonObject = await fetch_value(tx, "SELECT operations(%s)", [minutes])
    return found
