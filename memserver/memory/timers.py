"""Setting timers: the timer and the job that lets it go off are stored together."""

from datetime import datetime, timedelta
from uuid import UUID

from memserver.errors import InvalidInput
from memserver.storage import jobs, timers
from memserver.storage.database import Transaction
from memserver.storage.jobs import Job
from memserver.storage.timers import TimerRow
from memserver.text import clean

JOB = "timer"  # the job's name
MOST = 1_000  # timers that an agent may have
FARTHEST = timedelta(days=3653)


async def set_timer(
    tx: Transaction, tenant: str, agent_id: UUID, *, text: str, due: datetime, now: datetime
) -> TimerRow:
    """Set a timer for an agent that is there. Raises InvalidInput."""
    words = clean(text).strip()
    if not words:
        raise InvalidInput("text: a timer needs one, which the agent reads then.")
    if due <= now:
        raise InvalidInput(f"at: {due.isoformat()} is over; now it is {now.isoformat()}.")
    if due > now + FARTHEST:
        raise InvalidInput("at: a timer may be ten years away at most.")
    if await timers.count(tx, agent_id) >= MOST:
        raise InvalidInput(
            f"The agent has {MOST:,} timers, which is the most.",
            hint="Delete some by DELETE /v1/agents/{agent}/timers/{timer_id}.",
        )
    return await keep_timer(tx, tenant, agent_id, words, due)


async def keep_timer(
    tx: Transaction, tenant: str, agent_id: UUID, text: str, due: datetime
) -> TimerRow:
    """Store a timer that was set well, here or elsewhere; one whose time is over goes off at once."""
    timer = await timers.add(tx, tenant, agent_id, text, due)
    named = {"timer_id": str(timer.id)}
    await jobs.defer(tx, Job(JOB, tenant, named, key=str(timer.id), due=due))
    return timer
