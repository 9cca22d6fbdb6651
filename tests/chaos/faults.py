"""The faults: each damages the world, and returns when what it took away is back."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.world import LEASE_SECONDS, Service, World

AWAY_SECONDS = 4
STANDSTILL_SECONDS = 15
STOPPED_SECONDS = 2.5 * LEASE_SECONDS


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
            ("postgres stands still", self.standstill),
            ("main", self.main),
            ("backend", self.backend),
            ("backends terminated", self.terminated),
            ("all at once", self.all_at_once),
        ]
        if self.world.bouncer is not None:
            order += [("pgbouncer", self.pgbouncer), ("no database at a start", self.no_database)]
        if self.world.disk is not None:
            order.append(("disk full", self.disk_full))
        return dict(order)

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

    async def backend(self) -> None:
        """Kill the process of one connection: Postgres ends all others and recovers."""
        if backends := self.world.backends():
            self._kill(self.chance.choice(backends), "backend")

    async def terminated(self) -> None:
        """End all connections, as an administrator does."""
        with self.world.superuser() as connection:
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
