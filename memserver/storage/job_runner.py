"""Runs jobs in this process, by a procrastinate worker on our own pool.

A job whose process dies is taken up by another one when its worker has given no sign for a while. A
job that fails is tried again after a pause that grows, a bounded number of times.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from time import perf_counter

from procrastinate import App, BaseRetryStrategy, JobContext, PsycopgConnector, RetryDecision
from procrastinate.builtin_tasks import remove_old_jobs
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.jobs import DeleteJobCondition, Status
from procrastinate.jobs import Job as StoredJob
from procrastinate.manager import JobManager
from procrastinate.worker import Worker
from typing_extensions import override

from memserver.errors import MemserverError
from memserver.messages import JsonObject
from memserver.storage.database import Database
from memserver.storage.failures import is_transient
from memserver.storage.jobs import Handler, JobRun
from memserver.storage.repeating import end, repeat, run_beside
from memserver.storage.rows import fetch_values
from memserver.storage.watched import allow_long_statements
from memserver.telemetry import ids
from memserver.telemetry.metrics import JOB, NO_METRICS, Recorder

logger = logging.getLogger(__name__)

QUEUE = "memserver"
MOST_ATTEMPTS = 8
LONGEST_PAUSE = 600  # seconds; with the pauses before it, an outage of half an hour fails no job
GRACE_SECONDS = 2.0
"""What running jobs get to end by themselves when the process is to stop; then they continue elsewhere."""
KEEP_FAILED_HOURS = 7 * 24
HOURLY = "7 * * * *"


class JobRunner:
    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        *,
        at_once: int,
        lease_seconds: float,
        metrics: Recorder = NO_METRICS,
    ) -> None:
        """Run jobs by the handlers of their names, `at_once` at the same time; with 0 others run them.

        A dead worker's jobs wait for `lease_seconds` before another one takes them over.
        """
        self._database = database
        self._at_once = at_once
        self._lease_seconds = lease_seconds
        self._pause = lease_seconds / 3
        self._stopping = False
        self._worker: Worker | None = None
        # A tick of the past is left out: what was missed while no process ran need not be made up.
        connector = _Connector(database, self._pause)
        self._app = App(connector=connector, periodic_defaults={"max_delay": 0})
        self._app.job_manager = _Manager(connector, pause=self._pause)
        for name, handler in handlers.items():
            run = partial(_run, handler, metrics)
            self._app.task(name=name, queue=QUEUE, retry=_Retries(), pass_context=True)(run)
        # Without a periodic task a worker would not notice that its heartbeat has stopped
        # (procrastinate issue 1597); this one is of use, too.
        upkeep = self._app.task(name="upkeep", queue=QUEUE, pass_context=True)(_upkeep)
        self._app.periodic(cron=HOURLY)(upkeep)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run jobs while the block runs; at its end those that don't end soon go back to the queue."""
        async with self._app.open_async(self._database.pool):
            if not self._at_once:
                yield
                return
            async with run_beside(repeat(self._take_over, self._pause)):
                working = asyncio.create_task(self._work())
                try:
                    yield
                finally:
                    self._stopping = True
                    if self._worker is None:
                        await end(working)
                    else:
                        self._worker.stop()
                        await asyncio.gather(working, return_exceptions=True)

    async def run_until_idle(self) -> None:
        """Run every job that waits, also those for later, one by one, until none is left.

        For tests and for programs that want their jobs done now; only where none run by themselves.
        """
        assert not self._at_once
        while await self._hurry():
            await self._make_worker(wait=False).run()

    async def _hurry(self) -> bool:
        """Make all that waits due now; returns whether anything does."""
        async with self._database.across_tenants() as tx:
            cursor = await tx.execute(
                "UPDATE procrastinate_jobs SET scheduled_at = NULL "
                "WHERE status = 'todo' AND queue_name = %s",
                [QUEUE],
            )
        return cursor.rowcount > 0

    def _make_worker(self, *, wait: bool) -> Worker:
        return Worker(
            self._app,
            queues=[QUEUE],
            concurrency=self._at_once or 1,
            wait=wait,
            listen_notify=wait,
            # A job for later, and one whose like has ended, are not notified but found by looking.
            fetch_job_polling_interval=self._pause,
            shutdown_graceful_timeout=min(GRACE_SECONDS, self._lease_seconds) if wait else None,
            delete_jobs=DeleteJobCondition.SUCCESSFUL,
            install_signal_handlers=False,
            update_heartbeat_interval=self._pause,
            stalled_worker_timeout=self._lease_seconds,
        )

    async def _work(self) -> None:
        """Have a worker run for ever: one that stops, most likely since the database was away, is followed by another."""
        while not self._stopping:
            self._worker = self._make_worker(wait=True)
            reason = "The job worker has stopped."
            running = asyncio.ensure_future(self._worker.run())
            await asyncio.wait([running])
            error = running.exception()
            if isinstance(error, ConnectorException):
                reason = f"The database failed: {error.__cause__ or error}".strip()
            elif error is not None:
                logger.error("The job worker has a fault of ours.", exc_info=error)
            self._worker = None
            if not self._stopping:
                logger.warning("%s Starting another one in %.1f s.", reason, self._pause)
                await asyncio.sleep(self._pause)

    async def _take_over(self) -> None:
        """Queue again what dead workers were running."""
        async with self._database.across_tenants() as tx:
            query = "SELECT retry_stalled_jobs(%s, %s)"
            for job in await fetch_values(tx, query, [self._lease_seconds, MOST_ATTEMPTS]):
                logger.warning("Job %s was left by a dead worker.", job)


class _Connector(PsycopgConnector):
    """Procrastinate's access to the database: our pool, and our way to listen."""

    def __init__(self, database: Database, pause: float) -> None:
        super().__init__()
        self._database = database
        self._pause = pause

    @override
    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        [channel] = channels

        async def listen() -> None:
            async for _, payload in self._database.listen(channel):
                await on_notification(channel=channel, payload=payload)

        await repeat(listen, self._pause)  # jobs are found by looking meanwhile


class _Manager(JobManager):
    """Sees to it that a job's end is stored: a job that stays "doing" holds up all of its key."""

    def __init__(self, connector: PsycopgConnector, *, pause: float) -> None:
        super().__init__(connector)
        self._pause = pause

    @override
    async def update_heartbeat(self, worker_id: int) -> None:
        """A sign that can't be given now is given the next time."""
        try:
            await super().update_heartbeat(worker_id)
        except ConnectorException as error:
            if not is_transient(error.__cause__):
                raise

    @override
    async def finish_job_by_id_async(self, job_id: int, status: Status, delete_job: bool) -> None:
        await self._insist(partial(super().finish_job_by_id_async, job_id, status, delete_job))

    @override
    async def retry_job_by_id_async(
        self,
        job_id: int,
        retry_at: datetime,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        retry = super().retry_job_by_id_async
        try:
            await self._insist(partial(retry, job_id, retry_at, priority, queue, lock))
        except UniqueViolation:  # another one of its name and key waits already
            await self.finish_job_by_id_async(job_id, Status.FAILED, delete_job=True)

    async def _insist(self, store: Callable[[], Awaitable[None]]) -> None:
        for _ in range(3):  # as long as the heartbeat may be late; then another worker takes over
            try:
                return await store()
            except ConnectorException as error:
                if not is_transient(error.__cause__):
                    raise
            await asyncio.sleep(self._pause)
        return await store()


class _Retries(BaseRetryStrategy):
    """When a failed job is tried again: at once if it was cut off, else after 1, 5, 25, … seconds."""

    @override
    def get_retry_decision(
        self, *, exception: BaseException, job: StoredJob
    ) -> RetryDecision | None:
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_in={"seconds": 0})
        logger.warning(
            "Job %s (%s) failed at attempt %d: %s",
            *(job.id, job.task_name, job.attempts + 1, exception),
            exc_info=None if isinstance(exception, MemserverError) else exception,
        )
        if job.attempts + 1 >= MOST_ATTEMPTS:
            return None
        return RetryDecision(retry_in={"seconds": min(5**job.attempts, LONGEST_PAUSE)})


async def _run(
    handler: Handler, metrics: Recorder, context: JobContext, tenant: str, args: JsonObject
) -> None:
    job = context.job
    attempt = job.attempts + 1
    start, outcome = perf_counter(), "failed"
    try:
        with allow_long_statements(), ids.bound(tenant=tenant, job=job.id, job_name=job.task_name):
            await handler(JobRun(tenant, args, attempt, attempt >= MOST_ATTEMPTS))
        outcome = "done"
    finally:
        metrics.record(JOB, perf_counter() - start, job.task_name, outcome)


async def _upkeep(context: JobContext, timestamp: int) -> None:  # noqa: ARG001 - procrastinate's
    """Delete failed jobs that are old; those that succeed are deleted at once."""
    await remove_old_jobs(
        context,
        max_hours=KEEP_FAILED_HOURS,
        remove_failed=True,
        remove_cancelled=True,
        remove_aborted=True,
    )
