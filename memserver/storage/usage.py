"""Tokens that turns have used: by day, and of today for a budget. Days are those of UTC."""

from uuid import UUID

from memserver.storage.database import Transaction
from memserver.storage.rows import fetch_all, fetch_value
from memserver.wire.usage import DailyUsage

_TODAY = "date_trunc('day', now(), 'UTC')"


async def by_day(tx: Transaction, days: int, agent_id: UUID | None = None) -> list[DailyUsage]:
    """What the tenant's turns used on each of the last days, today among them; days without any are left out."""
    query = f"""SELECT (at AT TIME ZONE 'UTC')::date AS day,
                       count(*) FILTER (WHERE stop IS NOT NULL) AS turns, count(*) AS steps,
                       sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
                       sum(completion_tokens) AS completion_tokens
                FROM turn_steps
                WHERE at >= {_TODAY} - make_interval(days => %(days)s - 1)
                  AND (%(agent)s::uuid IS NULL OR agent_id = %(agent)s)
                GROUP BY 1 ORDER BY 1"""
    return await fetch_all(tx, DailyUsage, query, {"days": days, "agent": agent_id})


async def of_agent_today(tx: Transaction, agent_id: UUID) -> int:
    query = f"""SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM turn_steps
                WHERE agent_id = %s AND at >= {_TODAY}"""
    return int(await fetch_value(tx, query, [agent_id]))


async def of_key_today(tx: Transaction, key_id: UUID) -> int:
    query = f"""SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM turns
                WHERE api_key = %s AND created_at >= {_TODAY}"""
    return int(await fetch_value(tx, query, [key_id]))
