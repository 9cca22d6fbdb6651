"""What expires is erased: at its own time, or when it is older than the tenant or the agent keeps anything.

Erasing itself is that of single messages, passages and documents, so that nothing derived is left. Retention is counted
in whole days of UTC, so that an agent's summary is written again once a day at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memserver.storage import documents, erasure, passages
from memserver.storage.api_keys import list_tenants
from memserver.storage.database import Database, Transaction
from memserver.storage.erasure import Selection
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.missing import no_agent
from memserver.storage.repeating import repeat, run_beside
from memserver.storage.rows import PageQuery, fetch_all, fetch_value, fetch_values

FIRST_AFTER, ERASE_EVERY = 60.0, 3600.0
"""Seconds, so that a server that is often started again erases, too."""
BATCH = 1000
"""Messages or passages that are erased in one transaction."""


@dataclass(frozen=True, slots=True)
class _Keeper:
    """An agent or a collection, and the moment before which it keeps nothing; None: it keeps all that has no time."""

    id: UUID
    before: datetime | None


_DAYS = """(SELECT least((a.options ->> 'retention_days')::integer, t.retention_days)
            FROM tenants t WHERE t.tenant = a.tenant)"""
_BEFORE = "date_trunc('day', %(now)s::timestamptz, 'UTC') - make_interval(days => {days}) AS before"
_AGENTS = f"""
SELECT id, before FROM (SELECT a.id, {_BEFORE.format(days=_DAYS)} FROM agents a) k
WHERE before IS NOT NULL OR EXISTS (
    SELECT FROM messages m WHERE m.agent_id = k.id AND m.expires_at <= %(now)s)
"""
_COLLECTIONS = f"""
SELECT id, before FROM (
    SELECT c.id, {
    _BEFORE.format(
        days=f"coalesce((SELECT {_DAYS} FROM agents a WHERE a.collection_id = c.id), t.retention_days)"
    )
}
    FROM collections c JOIN tenants t ON t.tenant = c.tenant) k
WHERE before IS NOT NULL OR EXISTS (
    SELECT FROM passages p WHERE p.collection_id = k.id AND p.expires_at <= %(now)s)
"""
_MESSAGES = f"""
SELECT m.position FROM messages m
WHERE m.agent_id = %(id)s AND (m.created_at < %(before)s OR m.expires_at <= %(now)s)
  AND m.position < (SELECT (done_turn + 1) * {PLACES_PER_TURN} FROM agent_state WHERE agent_id = %(id)s)
ORDER BY m.position LIMIT {BATCH}
"""
_DOCUMENTS = (
    "SELECT id FROM documents WHERE collection_id = %(id)s AND created_at < %(before)s LIMIT 20"
)
_PASSAGES = f"""
SELECT id FROM passages
WHERE collection_id = %(id)s AND (created_at < %(before)s OR expires_at <= %(now)s) LIMIT {BATCH}
"""


async def set_expiry(
    tx: Transaction, agent_id: UUID, wanted: Selection, expires_at: datetime | None
) -> int:
    """Say when messages expire, or with None that they don't; how many they are.

    Raises:
        NotFound: no such agent, or not all of the messages are there; nothing is changed.
        Conflict: one is of a turn that has not ended; nothing is changed.
    """
    query = "SELECT tenant FROM agent_state WHERE agent_id = %s FOR UPDATE"
    if await fetch_value(tx, query, [agent_id]) is None:
        raise no_agent(agent_id)
    found = await erasure.find(tx, agent_id, wanted)
    await tx.execute(
        "UPDATE messages SET expires_at = %s WHERE agent_id = %s AND position = ANY (%s::bigint[])",
        [expires_at, agent_id, [each.position for each in found]],
    )
    return len(found)


async def erase_expired(database: Database, now: datetime) -> int:
    """Erase what has expired, of all tenants, in short transactions; returns how many messages and passages."""
    total, after = 0, None
    while True:
        async with database.across_tenants() as tx:
            tenants = await list_tenants(tx, PageQuery(BATCH, after))
        for each in tenants:
            total += await _erase_of(database, each.tenant, now)
        if len(tenants) < BATCH:
            return total
        after = tenants[-1].tenant


def erasing_expired(database: Database) -> AbstractAsyncContextManager[None]:
    """Erase what has expired, now and then while the block runs; several processes may."""

    async def erase() -> None:
        async with database.across_tenants() as tx:
            now: datetime = await fetch_value(tx, "SELECT now()", [])
        await erase_expired(database, now)

    async def again_and_again() -> None:
        await asyncio.sleep(FIRST_AFTER)
        await repeat(erase, ERASE_EVERY)

    return run_beside(again_and_again())


async def _erase_of(database: Database, tenant: str, now: datetime) -> int:
    async with database.tenant(tenant) as tx:
        agents = await fetch_all(tx, _Keeper, _AGENTS, {"now": now})
        collections = await fetch_all(tx, _Keeper, _COLLECTIONS, {"now": now})
    total = 0
    for each in agents:
        total += await _erase_batches(database, tenant, each, now, _erase_messages)
    for each in collections:
        for erase in (_erase_documents, _erase_passages):
            total += await _erase_batches(database, tenant, each, now, erase)
    return total


async def _erase_batches(
    database: Database, tenant: str, keeper: _Keeper, now: datetime, erase: "_Erase"
) -> int:
    total = 0
    while True:
        async with database.tenant(tenant) as tx:
            # What another process is erasing is left to it.
            mine = "SELECT pg_try_advisory_xact_lock(hashtextextended('memserver expiry', 0))"
            gone = await erase(tx, keeper, now) if await fetch_value(tx, mine, []) else 0
        total += gone
        if not gone:
            return total


async def _erase_messages(tx: Transaction, agent: _Keeper, now: datetime) -> int:
    # First, as erasing does: else positions that are found here may be gone before it has the lock.
    query = "SELECT 1 FROM agent_state WHERE agent_id = %s FOR UPDATE"
    if await fetch_value(tx, query, [agent.id]) is None:
        return 0
    positions = await _expired(tx, _MESSAGES, agent, now)
    if positions:
        await erasure.erase(tx, agent.id, Selection(positions))
    return len(positions)


async def _erase_documents(tx: Transaction, collection: _Keeper, now: datetime) -> int:
    expired = await _expired(tx, _DOCUMENTS, collection, now)
    for each in expired:
        await documents.delete(tx, each)
    return len(expired)


async def _erase_passages(tx: Transaction, collection: _Keeper, now: datetime) -> int:
    expired = await _expired(tx, _PASSAGES, collection, now)
    return await passages.delete_many(tx, collection.id, expired) if expired else 0


async def _expired(tx: Transaction, query: str, keeper: _Keeper, now: datetime) -> Sequence[Any]:
    values = {"id": keeper.id, "before": keeper.before, "now": now}
    return await fetch_values(tx, query, values)


_Erase = Callable[[Transaction, _Keeper, datetime], Awaitable[int]]
