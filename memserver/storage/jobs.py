"""Jobs: work that nobody waits for, queued in the transaction of the write that asks for it.

Owns what a job is and how it is queued. Leaves running them to `job_runner`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from psycopg.types.json import Jsonb

from memserver.messages import JsonObject
from memserver.storage.database import Transaction
from memserver.storage.rows import fetch_value


@dataclass(frozen=True, slots=True)
class Job:
    name: str  # which handler does it
    tenant: str
    # What the handler gets: ids, never a tenant's content, since no policy guards the queue
    args: Mapping[str, object] = field(default_factory=dict)
    # Jobs of the same name and key never run at the same time, and no more than one of them waits; None:
    # nothing keeps them apart
    key: str | None = None
    priority: int = 0  # of the jobs that wait, the highest goes first
    due: datetime | None = None  # not before then; None is at once


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job while it runs: what a handler gets."""

    tenant: str  # in whose scope the handler works
    args: JsonObject  # as they were queued
    attempt: int  # from 1
    last: bool  # whether it isn't tried again if it fails


Handler = Callable[[JobRun], Awaitable[None]]
"""Does a job, in transactions of its own; an exception has it tried again later.

It may be cancelled between two awaits, and may be run again though it had got to its end: what it
commits has to bear that.
"""


async def defer(tx: Transaction, job: Job) -> int | None:
    """Queue a job; it exists if and only if the transaction commits.

    Returns its number, or None if one of its name and key waits already.
    """
    values = [job.name, job.tenant, Jsonb(dict(job.args)), job.key, job.priority, job.due]
    number: int | None = await fetch_value(tx, "SELECT defer_job(%s, %s, %s, %s, %s, %s)", values)
    return number


async def any_due(tx: Transaction) -> bool:
    """Whether a job waits, of any tenant, that could run now."""
    query = """SELECT EXISTS (SELECT FROM procrastinate_jobs waiting
                   WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now())
                   AND NOT EXISTS (SELECT FROM procrastinate_jobs running
                                   WHERE running.status = 'doing' AND running.lock = waiting.lock))"""
    found: bool = await fetch_value(tx, query)
    return found


async def count(tx: Transaction) -> list[tuple[str, str, int]]:
    """Jobs of all tenants that wait, run or have failed: name, status and how many."""
    cursor = await tx.execute(
        "SELECT task_name, status, count(*) FROM procrastinate_jobs GROUP BY 1, 2 ORDER BY 1, 2"
    )
    return [(row["task_name"], row["status"], row["count"]) for row in await cursor.fetchall()]
