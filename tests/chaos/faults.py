"""The faults: each damages the world, and returns when what it took away is back."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from tests.chaos.databases import Replicated
from tests.chaos.world import LEASE_SECONDS, Service, World
from tests.support.servers import STOP_SECONDS, wait_for

AWAY_SECONDS = 4
STANDSTILL_SECONDS = 15
STOPPED_SECONDS = 2.5 * LEASE_SECONDS
LEAVE_POSTGRES = (
    "postgres stands still",
    "disk full",
    "migration",
    "backends terminated",
    "upgrade",
)
"""What needs a Postgres that isn't killed at the same time."""
MIGRATED = ("messages", "turns", "agent_state", "agents", "tool_calls")


@dataclass
class Faults:
    """Makes faults, and counts what was killed."""

    world: World
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """By name, in the order in which they come around."""
        order: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("worker", self.worker),
            ("postmaster", self.postmaster),
            ("sigstop", self.sigstop),
            ("migration", self.migration),
            ("upgrade", self.upgrade),
            ("postgres stands still", self.standstill),
            ("main", self.main),
            ("backend", self.backend),
            ("backends terminated", self.terminated),
            ("all at once", self.all_at_once),
        ]
        if self.world.bouncer is not None:
            order += [("pgbouncer", self.pgbouncer), ("no database at a start", self.no_database)]
        if isinstance(self.world.database, Replicated):
            order[2:2] = [("failover", self.failover), ("standby", self.standby)]
        if self.world.disk is not None:
            order.append(("disk full", self.disk_full))
        return dict(order)

    async def round(self, name: str) -> None:
        """One kind, together with those that are frequent, as far as it leaves anything of them."""
        beside = [self._often(self.worker, 3)]
        if name not in {"sigstop", "upgrade"}:
            beside.append(self.sigstop())
        if name not in {"main", "all at once", "upgrade"}:
            beside.append(self.main())
        if name not in {"postmaster", "failover", "all at once", *LEAVE_POSTGRES}:
            beside.append(self._often(self.postmaster, 2))
        await asyncio.gather(self.kinds()[name](), *beside)

    async def _often(self, fault: Callable[[], Awaitable[None]], times: int) -> None:
        for _ in range(times):
            await fault()
            await asyncio.sleep(STOPPED_SECONDS / 3)

    async def worker(self) -> None:
        """Kill a worker process of each server."""
        for service in self.world.services:
            self._kill_worker(service)

    async def main(self) -> None:
        """Kill a server's main process; its workers must end by themselves, or the port stays taken."""
        self._kill_main(self.chance.choice(self.world.services))

    async def postmaster(self) -> None:
        """Kill Postgres."""
        self._kill(self.world.postmaster(), "postmaster")

    async def failover(self) -> None:
        """Kill Postgres for good, and promote its standby; the pooler is led to it."""
        if isinstance(self.world.database, Replicated):
            await asyncio.to_thread(self.world.database.fail_over)
            self.done["postmaster"] += 1
            self.done["failover"] += 1
            await self.pgbouncer()

    async def standby(self) -> None:
        """Kill the standby, without which nothing is committed."""
        if isinstance(self.world.database, Replicated):
            self._kill(self.world.database.standby.pid, "standby")

    async def migration(self) -> None:
        """Add a column to each of the tables that a turn uses, and take it away the next time."""
        what = "DROP" if self.done["migration"] % 2 else "ADD"
        kind = "" if self.done["migration"] % 2 else "text"
        for table in MIGRATED:
            await self._alter(f"ALTER TABLE {table} {what} COLUMN chaos {kind}")
        self.done["migration"] += 1

    async def _alter(self, statement: str) -> None:
        """As migrations do: who waits for a lock lets others pass now and then."""
        with self.world.database.superuser() as connection:
            connection.execute("SET lock_timeout = '1s'")
            while True:
                try:
                    await asyncio.to_thread(connection.execute, statement.encode())
                except psycopg.errors.LockNotAvailable:
                    await asyncio.sleep(1)
                else:
                    return

    async def upgrade(self) -> None:
        """Stop one server after the other in good order, each when the one before is ready again."""
        for service in self.world.services:
            stopped = service.process
            if stopped is None:
                continue
            with suppress(ProcessLookupError):
                os.kill(stopped.pid, signal.SIGTERM)
            self.done["upgrade"] += 1
            await asyncio.to_thread(wait_for, lambda: service.process is not stopped, STOP_SECONDS)  # noqa: B023
            await asyncio.to_thread(wait_for, lambda: _is_ready(service), STOP_SECONDS)  # noqa: B023

    async def backend(self) -> None:
        """Kill the process of one connection: Postgres ends all others and recovers."""
        if backends := self.world.backends():
            self._kill(self.chance.choice(backends), "backend")

    async def terminated(self) -> None:
        """End all connections, as an administrator does."""
        with self.world.database.superuser() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND usename <> 'postgres'"
            )

    async def all_at_once(self) -> None:
        """Kill workers, main processes and Postgres."""
        for service in self.world.services:
            for _ in range(len(service.workers())):
                self._kill_worker(service)
            self._kill_main(service)
        self._kill(self.world.postmaster(), "postmaster")

    async def sigstop(self) -> None:
        """Stop a worker for longer than its lease, and let it run on."""
        for service in self.world.services[:1]:
            if workers := service.workers():
                pid = self.chance.choice(workers)
                self.done["sigstop"] += 1
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(STOPPED_SECONDS)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    async def standstill(self) -> None:
        """Stop Postgres with all its processes for longer than a statement is waited for, and let it run on."""
        stopped: set[int] = set()
        while more := self.world.postgres_processes() - stopped:
            for pid in more:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= more
        self.done["standstill"] += 1
        await asyncio.sleep(STANDSTILL_SECONDS)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def pgbouncer(self) -> None:
        """Kill the pooler, which is started again at once."""
        if self.world.bouncer is not None and self.world.bouncer.process is not None:
            self._kill(self.world.bouncer.process.pid, "pgbouncer")

    async def no_database(self) -> None:
        """Take the second server's database away, and kill a worker, whose successor starts without one."""
        bouncer = self.world.bouncer
        if bouncer is None:
            return
        bouncer.stop()
        self._kill_worker(self.world.services[1])
        await asyncio.sleep(AWAY_SECONDS)
        bouncer.wanted = True

    async def disk_full(self) -> None:
        """Fill the disk of Postgres, and make room again."""
        if self.world.disk is None:
            return
        filler = self.world.disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 1_000_000)
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        await asyncio.sleep(AWAY_SECONDS)
        filler.unlink()

    def _kill_worker(self, service: Service) -> None:
        if workers := service.workers():
            self._kill(self.chance.choice(workers), "worker")

    def _kill_main(self, service: Service) -> None:
        self._kill(service.main(), "main")

    def _kill(self, pid: int, kind: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.done[kind] += 1


def _is_ready(service: Service) -> bool:
    return service.process is not None and service.process.healthy("/v1/ready")
