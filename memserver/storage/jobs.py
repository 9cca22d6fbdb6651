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
    """Something to be done later.

    Attributes:
        name: which handler does it.
        tenant: in whose scope.
        args: what the handler is told: ids, never a tenant's content, since no policy guards the queue.
        key: jobs of the same name and key never run at the same time, and no more than one of them
            waits; None: nothing keeps them apart.
        priority: of the jobs that wait, the highest goes first.
        due: not before then; None is at once.
    """

    name: str
    tenant: str
    args: Mapping[str, object] = field(default_factory=dict)
    key: str | None = None
    priority: int = 0
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job while it runs: what a handler gets.

    Attributes:
        tenant: in whose scope the handler works.
        args: as they were queued.
        attempt: counts from 1.
        last: whether it isn't tried again if it fails.
    """

    tenant: str
    args: JsonObject
    attempt: int
    last: bool


Handler = Callable[[JobRun], Awaitable[None]]
"""Does a job, in transactions of its own; an exception has it tried again later.

It may be cancelled between two awaits, and may be run again though it had got to its end: what it
commits has to bear that.
"""


async def defer(tx: Transaction, job: Job) -> int | None:
    """Queue a job; it exists if and only if the transaction commits.

    Returns:
        Its number, or None if one of its name and key waits already.
    """
    values = [job.name, job.tenant, Jsonb(dict(job.args)), job.key, job.priority, job.due]
    number: int | None = await fetch_value(tx, "SELECT defer_job(%s, %s, %s, %s, %s, %s)", values)
    return number
