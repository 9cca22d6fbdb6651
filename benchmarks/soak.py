"""A server under steady load for a long time, and whether its memory is flat.

`memserver serve` with two workers, the scripted model, and agents in a window small enough that they evict and are
summarized all the time. Clients post messages, every fourth as a stream, and some search; a few agents are deleted and
made in each block. Between blocks of load each process is sampled: PSS without shared memory (Postgres' cache), RSS, open
files, sockets, asyncio tasks; and the largest of the backends that serve its connections: their mean grows for hours, since
each caches catalog and plans of rare statements when it first sees them.

The slope is that of PSS over turns after the first fifth, by least squares; its 95 % interval is a bootstrap over
tenths of the samples, since neighbours are alike. A process grows when the whole interval lies above FLAT.

Run it: `python -m benchmarks.soak [--minutes M] [--turns N] [--png FILE] [--json]`. It ends with 1 if something grows.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from typing_extensions import override

from benchmarks.gpu_report import wide_console
from benchmarks.load import Clients, Conversation, Request, Run, Turn, in_slots
from benchmarks.turn_stage import WORDS
from benchmarks.usage import of_postgres
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver_evals.report.style import COLOURS, as_png, make_figure
from tests.support.long_history import sentences
from tests.support.servers import (
    PROC,
    ServerProcess,
    memserver,
    running_processes,
    scripted_model,
    settings_for,
    temporary_folder,
    wait_for,
)

WORKERS, CLIENTS, AGENTS, REPLACED = 2, 8, 100, 2
BLOCK_SECONDS = 10.0
TURNS_EACH = 4
"""With one agent, before the client takes its next one."""
LOOKED_AT = 8
"""Of so many agents one is searched and listed."""
FLAT = 0.5
"""MB in 10,000 turns, or 50 bytes a turn: whatever is kept of each turn takes more."""
WARM_UP, PIECES, RESAMPLES = 0.2, 10, 2000
SHOWN_TYPES = 8


@dataclass
class Sample:
    """One process after so many turns. Sizes are MB."""

    turns: int
    pss: float
    rss: float
    files: int
    sockets: int
    tasks: int = 0
    count: int = 1
    """Processes that this is the largest of."""


@dataclass
class Soak:
    """All that was sampled, by process."""

    seconds: float = 0.0
    turns: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    objects: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    """Of each worker, its objects by type, after the warm-up and at the end."""

    def add(self, run: Run) -> None:
        """Count what a block of load brought."""
        self.turns += sum(not each.error for each in run.outcomes)
        self.errors.update(each.error for each in [*run.outcomes, *run.unprepared] if each.error)

    def settled(self, name: str) -> list[Sample]:
        """A process's samples after the warm-up."""
        return [each for each in self.samples[name] if each.turns >= WARM_UP * self.turns]


@dataclass(frozen=True)
class Growth:
    """MB in 10,000 turns, with the ends of its 95 % interval."""

    slope: float
    low: float
    high: float

    @property
    def flat(self) -> bool:
        """Whether it may as well not grow."""
        return self.low <= FLAT

    @override
    def __str__(self) -> str:
        return f"{self.slope:g} ({self.low:g} to {self.high:g}) {'✓' if self.flat else '✗'}"


def growth(samples: Sequence[Sample]) -> Growth | None:
    """The slope of PSS; None with fewer samples than it needs."""
    points = np.array([(each.turns / 10_000, each.pss) for each in samples])
    if len(points) < 2 * PIECES:
        return None
    pieces, chance = np.array_split(points, PIECES), np.random.default_rng(0)
    drawn = [
        _slope(np.concatenate([pieces[n] for n in chance.integers(0, PIECES, PIECES)]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Growth(*(round(float(each), 3) for each in (_slope(points), low, high)))


def _slope(points: Any) -> float:  # noqa: ANN401 - numpy
    turns, sizes = points[:, 0] - points[:, 0].mean(), points[:, 1]
    return float(turns @ sizes / max(turns @ turns, 1e-12))


def sample(pid: int, turns: int) -> Sample | None:
    """Look at a process; None if it has ended."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        kilobytes = {name: int(size) for name, size, _ in map(str.split, lines)}
        targets = [os.readlink(each) for each in (PROC / str(pid) / "fd").iterdir()]
    except OSError:
        return None
    sockets = sum(target.startswith("socket:") for target in targets)
    pss = (kilobytes["Pss:"] - kilobytes["Pss_Shmem:"]) / 1024
    return Sample(turns, pss, kilobytes["Rss:"] / 1024, len(targets), sockets)


def command_line(pid: int) -> str:
    """What a process was started as; empty if it has ended."""
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@dataclass(frozen=True)
class Watched:
    """The processes of a server and of its Postgres."""

    home: Path
    server: ServerProcess

    def workers(self) -> list[int]:
        """Their pids, as they were started."""
        main = self.server.pid
        children = [pid for pid, fields in running_processes() if int(fields[1]) == main]
        return sorted(pid for pid in children if "spawn_main" in command_line(pid))

    def counts(self, pid: int) -> dict[str, Any]:
        """What a worker counts of itself."""
        file = self.home / f"{pid}.counts"
        file.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
        if not wait_for(file.exists, within=30):
            raise RuntimeError(f"The worker {pid} doesn't answer:\n{self.server.log_text()}")
        counts: dict[str, Any] = json.loads(file.read_text())
        return counts

    def look(self, into: Soak, *, objects: bool) -> None:
        """Sample everything."""
        names = {"main": self.server.pid}
        workers = self.workers()
        names |= {f"worker {number}": pid for number, pid in enumerate(workers, 1)}
        for name, pid in names.items():
            found = sample(pid, into.turns)
            if found is not None:
                into.samples.setdefault(name, []).append(found)
            if found is not None and pid in workers:
                counts = self.counts(pid)
                found.tasks = counts["tasks"]
                if objects:
                    into.objects.setdefault(name, []).append(counts["objects"])
        serving = [pid for pid in of_postgres(self.home)() if "memserver_app" in command_line(pid)]
        backends = [each for pid in serving if (each := sample(pid, into.turns)) is not None]
        largest = max(backends, key=lambda each: each.pss)
        into.samples.setdefault("backend", []).append(replace(largest, count=len(backends)))


def talk(agent: str, texts: Sequence[str], *, looked_at: bool) -> Conversation:
    """What is said to one agent, and asked of it."""
    path = f"/v1/agents/{agent}"
    posts = [
        Request(f"{path}/messages", json.dumps({"text": text, "stream": n == 0}).encode())
        for n, text in enumerate(texts)
    ]
    looks = (
        Request(f"{path}/recall/search?query={WORDS[1]}", b"", "GET"),
        Request(f"{path}/messages?limit=20", b"", "GET"),
    )
    return [*(Turn((post,)) for post in posts), *([Turn(looks, timed=False)] * looked_at)]


@contextmanager
def serving() -> Iterator[Watched]:
    """Postgres, the model and a server with its workers."""
    with (
        temporary_folder() as home,
        EmbeddedPostgres(home / "postgres"),
        scripted_model(home) as model,
    ):
        settings = settings_for(
            model.url, home=home, index_after_seconds=5, tools="benchmarks.soak_probe"
        )
        with memserver(home, settings, "--workers", str(WORKERS)) as server:
            if not wait_for(lambda: server.healthy("/v1/ready"), within=60):
                raise RuntimeError(server.log_text())
            yield Watched(home, server)


def soak(seconds: float, turns: int | None, console: Console, file: Path | None = None) -> Soak:
    """Load and look in turns, until the time is over or so many turns were made.

    Args:
        seconds: of load.
        turns: if given, so many instead.
        console: for progress.
        file: gets all samples so far after each block.
    """
    into, clients, texts = Soak(), Clients(1), sentences(WORDS, seed=0)
    try:
        with (
            serving() as watched,
            httpx2.Client(base_url=f"{watched.server.url}/v1", timeout=60) as http,
            Progress(console=console, transient=True) as bar,
        ):
            task = bar.add_task("", total=1)
            agents, start, share = _Agents(http), time.monotonic(), 0.0
            while share < 1:
                agents.replace(into.errors)
                talks = [
                    talk(agent, texts[n % 900 :][:TURNS_EACH], looked_at=n % LOOKED_AT == 0)
                    for n, agent in enumerate(agents.ids, into.turns)
                ]
                slots = in_slots(talks, CLIENTS)
                block = min(BLOCK_SECONDS, seconds)
                into.add(clients.run([watched.server.url], "memserver", slots, block))
                into.seconds = time.monotonic() - start
                share = into.turns / turns if turns else into.seconds / seconds
                settles = share >= WARM_UP and not into.objects
                watched.look(into, objects=settles or share >= 1)
                bar.update(task, completed=share, description=f"{into.turns:,} turns")
                if file is not None:
                    file.write_text(json.dumps(vars(into), default=vars))
    finally:
        clients.close()
    return into


class _Agents:
    """So many agents, of which some are deleted and made again and again."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self.ids: deque[str] = deque()

    def replace(self, errors: Counter[str]) -> None:
        for _ in range(REPLACED if self.ids else 0):
            agent = self.ids.popleft()
            answer = self._http.delete(f"/agents/{agent}")
            if answer.is_error:
                errors[f"delete: {answer.status_code}: {answer.text}"] += 1
        while len(self.ids) < AGENTS:
            made = self._http.post("/agents", json={}).raise_for_status()
            self.ids.append(made.json()["id"])


def figures(into: Soak) -> dict[str, Any]:
    """What `--json` prints."""
    processes = {}
    for name in into.samples:
        settled = into.settled(name)
        if settled:
            found = growth(settled)
            processes[name] = {
                "mb_per_10000_turns": found and [found.slope, found.low, found.high],
                "flat": found is None or found.flat,
                "first": asdict(settled[0]),
                "last": asdict(settled[-1]),
            }
    grown = {
        name: dict(_grown(counts).most_common(SHOWN_TYPES)) for name, counts in into.objects.items()
    }
    return {
        "turns": into.turns,
        "seconds": round(into.seconds),
        "flat": all(each["flat"] for each in processes.values()),
        "processes": processes,
        "more_objects": grown,
        "errors": dict(into.errors),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _grown(counts: Sequence[dict[str, int]]) -> Counter[str]:
    """Objects at the end that were not there after the warm-up, by type."""
    return Counter(counts[-1]) - Counter(counts[0])


def show(into: Soak, console: Console) -> None:
    """A row for each process, then what else there is to know."""
    title = f"{into.turns:,} turns in {into.seconds / 60:.1f} minutes, {into.errors.total()} errors"
    table = Table("process", "PSS MB", "MB in 10,000 turns", "open files", "tasks", title=title)
    for name in into.samples:
        settled = into.settled(name)
        if not settled:
            continue
        first, last, found = settled[0], settled[-1], growth(settled)
        table.add_row(
            name if last.count == 1 else f"largest {name} of {last.count}",
            f"{first.pss:.1f} to {last.pss:.1f}",
            str(found or "too short to say"),
            f"{first.files} to {last.files}",
            f"{first.tasks} to {last.tasks}",
        )
    console.print(table)
    for error, count in into.errors.most_common(5):
        console.print(f"{count} times: {error}", markup=False)


def draw(into: Soak, file: Path) -> None:
    """PSS over turns, and the slope after the warm-up."""
    figure = make_figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, samples) in zip(COLOURS, into.samples.items(), strict=False):
        found = growth(into.settled(name))
        axes.plot(
            [each.turns for each in samples],
            [each.pss for each in samples],
            color=colour,
            label=f"{name}: {found.slope:+.2f} MB in 10,000 turns" if found else name,
        )
    axes.axvspan(0, WARM_UP * into.turns, color="#e3e7eb", label="warm-up", zorder=0)
    axes.set(xlabel="turns", ylabel="MB (PSS)", xlim=(0, into.turns), ylim=(0, None))
    axes.grid()
    figure.legend(loc="outside lower center", ncols=2)
    file.write_bytes(as_png(figure))


def main() -> None:
    """Run it and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Looks whether a server's memory is flat.")
    parser.add_argument("--minutes", type=float, default=30, help="of load")
    parser.add_argument("--turns", type=int, help="so many turns, however long they take")
    parser.add_argument("--out", type=Path, help="a file for all samples so far")
    parser.add_argument("--png", type=Path, help="file for a picture")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    asked = parser.parse_args()
    console = wide_console()
    into = soak(60 * asked.minutes, asked.turns, console, asked.out)
    show(into, console)
    if asked.png:
        draw(into, asked.png)
    found = figures(into)
    if asked.json:
        print(json.dumps(found))
    if not found["flat"] or into.errors:
        sys.exit(1)


if __name__ == "__main__":
    main()
