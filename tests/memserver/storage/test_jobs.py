"""Jobs: queued with the write that asks for them, run once if all goes well, and never lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from memserver.errors import ModelUnavailable
from memserver.storage.database import Database
from memserver.storage.job_runner import MOST_ATTEMPTS, JobRunner
from memserver.storage.jobs import Handler, Job, JobRun, defer
from tests.support.deaf import deaf
from tests.support.server import OneDatabase

LEASE = 0.5


@dataclass
class Recorder:
    """A handler that notes its runs, and does more where a test says so."""

    runs: list[JobRun] = field(default_factory=list)
    ran: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, run: JobRun) -> None:
        self.runs.append(run)
        self.ran.set()


@asynccontextmanager
async def runner(
    database: OneDatabase, handler: Handler, *, at_once: int = 0
) -> AsyncIterator[tuple[Database, JobRunner]]:
    pool = Database(database.app, pool_size=4)
    await pool.open()
    jobs = JobRunner(pool, {"note": handler}, at_once=at_once, lease_seconds=LEASE)
    try:
        async with jobs.running():
            yield pool, jobs
    finally:
        await pool.close()


async def queue(pool: Database, **fields: Any) -> int | None:
    async with pool.tenant("mine") as tx:
        return await defer(tx, Job("note", "mine", **fields))


async def queue_then_fail(pool: Database) -> None:
    async with pool.tenant("mine") as tx:
        await defer(tx, Job("note", "mine", {"id": "lost"}))
        await tx.execute("SELECT 1 / 0")


def stored(database: OneDatabase) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.superuser) as connection:
        return connection.execute(
            "SELECT status, attempts FROM procrastinate_jobs ORDER BY id"
        ).fetchall()


async def test_a_job_exists_if_and_only_if_its_transaction_commits(database: OneDatabase) -> None:
    recorder = Recorder()
    async with runner(database, recorder) as (pool, jobs):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await queue_then_fail(pool)
        await queue(pool, args={"id": "kept"})
        await jobs.run_until_idle()
    assert recorder.runs == [JobRun("mine", {"id": "kept"}, attempt=1, last=False)]
    assert stored(database) == []


async def test_a_job_of_the_same_name_and_key_is_not_queued_twice(database: OneDatabase) -> None:
    recorder = Recorder()
    async with runner(database, recorder) as (pool, jobs):
        numbers = [await queue(pool, args={"n": n}, key="a") for n in range(3)]
        await queue(pool, key="b")
        async with pool.tenant("mine") as tx:  # the transaction stays usable
            assert await defer(tx, Job("note", "mine", key="a")) is None
            await defer(tx, Job("note", "mine", key="c"))
        await jobs.run_until_idle()
        again = await queue(pool, key="a")
    assert [number is None for number in numbers] == [False, True, True]
    assert again is not None
    assert [run.args.get("n") for run in recorder.runs] == [0, None, None]


async def test_a_job_queued_while_its_like_runs_waits_for_its_end(database: OneDatabase) -> None:
    running: list[int] = []
    began, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(run: JobRun) -> None:
        running.append(run.args["n"])
        assert len(running) == 1
        began.set()
        await go_on.wait()
        running.clear()
        if run.args["n"] == 2:
            done.set()

    async with runner(database, handler, at_once=4) as (pool, _):
        await queue(pool, args={"n": 1}, key="a")
        await began.wait()
        assert await queue(pool, args={"n": 2}, key="a") is not None
        await queue(pool, args={"n": 3}, key="a")  # one of them waits already
        go_on.set()
        await done.wait()
    assert stored(database) == []


async def test_the_highest_priority_goes_first_and_else_the_oldest(database: OneDatabase) -> None:
    recorder = Recorder()
    async with runner(database, recorder) as (pool, jobs):
        for number, priority in enumerate([0, -5, 5, 0]):
            await queue(pool, args={"n": number}, priority=priority)
        await jobs.run_until_idle()
    assert [run.args["n"] for run in recorder.runs] == [2, 0, 3, 1]


async def test_a_job_that_fails_is_tried_again_a_bounded_number_of_times(
    database: OneDatabase,
) -> None:
    runs: list[JobRun] = []

    async def handler(run: JobRun) -> None:
        runs.append(run)
        if run.args["fails"] >= run.attempt:
            raise ModelUnavailable("down")

    async with runner(database, handler) as (pool, jobs):
        await queue(pool, args={"fails": 2})
        await queue(pool, args={"fails": 100})
        await jobs.run_until_idle()
    fixed = [run for run in runs if run.args["fails"] == 2]
    hopeless = [run for run in runs if run.args["fails"] == 100]
    assert [run.attempt for run in fixed] == [1, 2, 3]
    assert [run.last for run in hopeless] == [False] * (MOST_ATTEMPTS - 1) + [True]
    assert stored(database) == [("failed", MOST_ATTEMPTS)]


async def test_a_job_that_fails_while_its_like_waits_leaves_the_work_to_that_one(
    database: OneDatabase,
) -> None:
    runs: list[int] = []

    async with runner(database, lambda run: handler(run)) as (pool, jobs):

        async def handler(run: JobRun) -> None:
            runs.append(run.args["n"])
            if run.args["n"] == 1:
                await queue(pool, args={"n": 2}, key="a")
                raise ModelUnavailable("down")

        await queue(pool, args={"n": 1}, key="a")
        await jobs.run_until_idle()
    assert runs == [1, 2]
    assert stored(database) == []


async def test_a_waiting_worker_is_woken_by_a_new_job(database: OneDatabase) -> None:
    recorder = Recorder()
    async with runner(database, recorder, at_once=1) as (pool, _):
        for _ in range(3):
            recorder.ran.clear()
            await queue(pool)
            await recorder.ran.wait()
    assert len(recorder.runs) == 3


async def test_a_job_that_runs_when_the_process_stops_goes_back_to_the_queue(
    database: OneDatabase,
) -> None:
    began = asyncio.Event()

    async def handler(run: JobRun) -> None:
        began.set()
        await asyncio.Event().wait()

    async with runner(database, handler, at_once=1) as (pool, _):
        await queue(pool, key="a")
        await began.wait()
    assert stored(database) == [("todo", 1)]
    recorder = Recorder()
    async with runner(database, recorder) as (_, jobs):
        await jobs.run_until_idle()
    assert len(recorder.runs) == 1


@pytest.mark.parametrize("worker_row", ["gone", "silent"])
async def test_a_dead_workers_job_is_taken_up_again(database: OneDatabase, worker_row: str) -> None:
    recorder = Recorder()
    async with runner(database, recorder) as (pool, _):
        await queue(pool, args={"n": 1}, key="a")
    with psycopg.connect(database.superuser) as connection:
        connection.execute(
            """WITH dead AS (
                   INSERT INTO procrastinate_workers (last_heartbeat)
                   VALUES (now() - interval '1 hour') RETURNING id
               )
               UPDATE procrastinate_jobs SET status = 'doing', worker_id = dead.id FROM dead"""
        )
        if worker_row == "gone":
            connection.execute("DELETE FROM procrastinate_workers")
    async with runner(database, recorder, at_once=1):
        await recorder.ran.wait()
    assert [(run.args, run.attempt) for run in recorder.runs] == [({"n": 1}, 2)]


async def test_a_job_that_kills_its_workers_is_given_up(database: OneDatabase) -> None:
    recorder = Recorder()
    async with runner(database, recorder) as (pool, _):
        await queue(pool)
        with psycopg.connect(database.superuser) as connection:
            for _ in range(MOST_ATTEMPTS):
                connection.execute("UPDATE procrastinate_jobs SET status = 'doing'")
                async with pool.across_tenants() as tx:
                    connection.commit()
                    await tx.execute("SELECT retry_stalled_jobs(1, %s)", [MOST_ATTEMPTS])
    assert stored(database) == [("failed", MOST_ATTEMPTS)]


async def test_nothing_of_a_runner_is_left_when_it_ends_though_a_cancellation_was_lost(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    looking = asyncio.Event()

    async def take_over(self: JobRunner) -> None:
        looking.set()
        await deaf(heard)

    monkeypatch.setattr(JobRunner, "_take_over", take_over)
    async with asyncio.timeout(60), runner(database, Recorder(), at_once=1):
        await looking.wait()
    assert heard == ["cancelled", "cancelled"]


async def test_jobs_continue_when_the_database_cuts_all_connections(database: OneDatabase) -> None:
    recorder = Recorder()
    async with runner(database, recorder, at_once=1) as (pool, _):
        await queue(pool)
        await recorder.ran.wait()
        recorder.ran.clear()
        with psycopg.connect(database.superuser) as connection:
            cut = connection.execute(
                """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE usename = 'memserver_app' AND datname = current_database()"""
            ).fetchone()
            connection.execute("SELECT defer_job('note', 'mine', '{}', NULL, 0, NULL)")
        await recorder.ran.wait()
    assert cut is not None
    assert cut[0] >= 3
    assert stored(database) == []


def test_the_migrations_make_the_schema_of_the_installed_procrastinate(
    database: OneDatabase,
) -> None:
    described = """
        SELECT 'function', proname, prosrc FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'procrastinate%'
        UNION ALL
        SELECT 'column', table_name || '.' || column_name, data_type || coalesce(column_default, '')
        FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name LIKE 'procrastinate%'
        UNION ALL
        SELECT 'index', indexname, replace(indexdef, current_schema(), '') FROM pg_indexes
        WHERE schemaname = current_schema() AND tablename LIKE 'procrastinate%'
        UNION ALL
        SELECT 'trigger', tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t
        JOIN pg_class c ON c.oid = tgrelid
        WHERE relnamespace = current_schema()::regnamespace AND tgname LIKE 'procrastinate%'
        UNION ALL
        SELECT 'label', typname, enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = enumtypid
        WHERE typnamespace = current_schema()::regnamespace"""
    with psycopg.connect(database.owner) as connection:
        ours = connection.execute(described).fetchall()
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(SchemaManager.get_schema().encode())
        theirs = connection.execute(described).fetchall()
        connection.rollback()
    assert len(theirs) > 50
    assert sorted(ours) == sorted(theirs), "procrastinate has a newer schema: add a migration"
