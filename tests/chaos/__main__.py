"""Kills, stops and starves the parts of memserver under load, and then looks whether anything was lost.

Two servers with two workers each share a Postgres with a standby (or with --embedded the embedded one of the
first), one of them through PgBouncer in transaction mode. Clients post messages with keys, each until it is
answered; a third of the turns calls a webhook. In every round one kind of fault comes together with killed
and stopped workers and mostly a killed Postgres and main process. Each round is followed until each part
works again without help: each server has its workers, is ready, and answers a message. Then the audit: everything stored once, answered once, in contiguous positions, no webhook
called twice, no turn left over.

Run it: `python -m tests.chaos [--minutes M] [--seed S] [--embedded] [--json]`. It ends with 1 unless nothing was lost, done
twice or stuck. Without pgbouncer on the path, or root for a disk that can be filled, those faults are left out.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any

import httpx2
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.chaos.audit import Audit, audit, read
from tests.chaos.faults import Faults
from tests.chaos.load import Load, make_agents, talk
from tests.chaos.world import WORKERS, Service, World, world
from tests.support.servers import temporary_folder

AGENTS = 6
RECOVERY_SECONDS = 60
"""What takes longer to work again is stuck."""
SHOWN = 10


@dataclass
class Kind:
    """One kind of fault: how often it came, and how long it took until all worked again."""

    times: int = 0
    longest_recovery_s: float = 0.0


@dataclass
class Outcome:
    """What came of it."""

    messages: int
    kinds: dict[str, Kind]
    done: Counter[str]
    audit: Audit
    slowest_answer_s: float
    not_recovered: list[str] = field(default_factory=list)

    @property
    def stuck(self) -> list[str]:
        """What didn't end, and what didn't come back."""
        return [*self.audit.stuck, *self.not_recovered]

    def figures(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "messages": self.messages,
            "lost": len(self.audit.lost),
            "twice": len(self.audit.twice),
            "stuck": len(self.stuck),
            "longest_recovery_s": max(
                (kind.longest_recovery_s for kind in self.kinds.values()), default=0.0
            ),
            "slowest_answer_s": round(self.slowest_answer_s, 1),
            "killed": dict(self.done),
            "kinds": {name: vars(kind) for name, kind in self.kinds.items()},
        }


async def run(made: World, seconds: float, seed: int, console: Console) -> Outcome:
    """Make faults under load for so long; what came of it."""
    agents = await make_agents(made, AGENTS + len(made.services))
    load = Load()
    urls = [service.url for service in made.services]
    clients = [
        asyncio.create_task(
            talk(load, agent, urls[place % len(urls) :] + urls[: place % len(urls)])
        )
        for place, agent in enumerate(agents[:AGENTS])
    ]
    faults = Faults(made, random.Random(seed))
    outcome = Outcome(0, {}, faults.done, Audit((), (), ()), 0.0)
    probes = dict(zip(made.services, agents[AGENTS:], strict=True))
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=seconds)
        start = time.monotonic()
        for name in cycle(faults.kinds()):
            if time.monotonic() - start > seconds:
                break
            bar.update(task, completed=time.monotonic() - start, description=name)
            await _make(faults, name, outcome, probes)
    load.stop()
    await asyncio.gather(*clients)
    await _settled(made, outcome)
    outcome.messages = len(load.messages)
    outcome.slowest_answer_s = max((said.seconds for said in load.messages), default=0.0)
    outcome.audit = audit(load.messages, read(made))
    return outcome


_numbers = count(1)


async def _make(faults: Faults, name: str, outcome: Outcome, probes: dict[Service, str]) -> None:
    kind = outcome.kinds.setdefault(name, Kind())
    kind.times += 1
    await faults.round(name)
    start = time.monotonic()
    while missing := await _missing(probes):
        if time.monotonic() - start > RECOVERY_SECONDS:
            outcome.not_recovered.append(f"after {name}: {missing}")
            break
        await asyncio.sleep(0.1)
    took = round(time.monotonic() - start, 1)
    kind.longest_recovery_s = max(kind.longest_recovery_s, took)


async def _missing(probes: dict[Service, str]) -> str:
    """What doesn't work; empty if all does."""
    for service, agent in probes.items():
        process = service.process
        if process is None or process.ended:
            return f"{service.name} has ended"
        if len(service.workers()) != WORKERS:
            return f"{service.name} has {len(service.workers())} workers"
        text = f"{agent} is asked {next(_numbers)}"
        try:
            async with httpx2.AsyncClient(base_url=service.url, timeout=15) as http:
                ready = await http.get("/v1/ready")
                if ready.status_code != 200:
                    return f"{service.name} is not ready: {ready.text[:200]}"
                answer = await http.post(
                    f"/v1/agents/{agent}/messages",
                    json={"text": text},
                    headers={"Idempotency-Key": text},
                )
        except httpx2.HTTPError as error:
            return f"{service.name}: {type(error).__name__} {error}"
        if answer.status_code != 200:
            return f"{service.name} answered {answer.status_code}: {answer.text[:200]}"
    return ""


async def _settled(made: World, outcome: Outcome) -> None:
    """Wait until no turn is left over; the audit says which were."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while time.monotonic() < deadline:
        with made.database.superuser() as connection:
            row = connection.execute(
                "SELECT count(*) FROM turns WHERE state IN ('waiting', 'running')"
            ).fetchone()
        if row == (0,):
            return
        await asyncio.sleep(0.2)


def show(outcome: Outcome, console: Console) -> None:
    """A row for each kind of fault, and what is wrong."""
    figures = outcome.figures()
    title = ", ".join(f"{figures[name]} {name}" for name in ("messages", "lost", "twice", "stuck"))
    table = Table("fault", "times", "longest recovery", title=title)
    for name, kind in outcome.kinds.items():
        table.add_row(name, str(kind.times), f"{kind.longest_recovery_s:g} s")
    console.print(table)
    for what, lines in (
        ("lost", outcome.audit.lost),
        ("twice", outcome.audit.twice),
        ("stuck", outcome.stuck),
    ):
        for line in lines[:SHOWN]:
            console.print(f"{what}: {line}", markup=False, soft_wrap=True)


def main() -> None:
    """Run it and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Kills parts of memserver under load.")
    parser.add_argument("--minutes", type=float, default=5, help="how long faults are made")
    parser.add_argument("--seed", type=int, default=0, help="of what is chosen")
    parser.add_argument("--embedded", action="store_true", help="Postgres without a standby")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    asked = parser.parse_args()
    console = Console()
    with temporary_folder() as folder, world(folder, embedded=asked.embedded) as made:
        outcome = asyncio.run(run(made, 60 * asked.minutes, asked.seed, console))
    show(outcome, console)
    if asked.json:
        print(json.dumps(outcome.figures()))
    if outcome.audit.lost or outcome.audit.twice or outcome.stuck:
        sys.exit(1)


if __name__ == "__main__":
    main()
