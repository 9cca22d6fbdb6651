"""An agent's token budget: what its turns may use on a day, in UTC."""

from datetime import UTC, datetime, timedelta

from memserver.errors import TokenBudgetExceeded
from memserver.storage import usage
from memserver.storage.database import Database
from memserver.storage.leases import ClaimedTurn


def seconds_to_reset(now: datetime) -> int:
    """Until the next day begins, in UTC."""
    return round((_tomorrow(now) - now).total_seconds()) + 1


def exceeded(whose: str, used: int, budget: int, now: datetime) -> TokenBudgetExceeded:
    return TokenBudgetExceeded(
        f"{whose} has used {used} tokens today, of {budget}.",
        retry_after=seconds_to_reset(now),
        hint=f"Ask again from {_tomorrow(now):%Y-%m-%dT%H:%M:%SZ} on, or set a larger daily_tokens.",
    )


async def find_excess(
    database: Database, work: ClaimedTurn, now: datetime
) -> TokenBudgetExceeded | None:
    """Why the turn may not begin; one that has begun may end."""
    budget = work.snapshot.agent.options.get("daily_tokens")
    if budget is None or work.turn.steps or work.turn.kind == "import":
        return None
    async with database.tenant(work.lease.tenant) as tx:
        used = await usage.of_agent_today(tx, work.turn.agent_id)
    return exceeded("The agent", used, budget, now) if used >= budget else None


def _tomorrow(now: datetime) -> datetime:
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + timedelta(days=1)
