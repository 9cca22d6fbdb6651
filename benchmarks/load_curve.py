"""Turns a second and their times by the number of clients, beside what Postgres alone can do with the same statements.

`memserver serve` with one worker, with two, and on two hosts (each with a home of its own, over one Postgres), as the
application role, with an API key and an Idempotency-Key on every post; the scripted model answers at once. Each client
talks with one agent after the other, whose queues have as many messages on both sides. The ceiling is one turn's
statements by pgbench (`benchmarks.ceiling`), on a copy of the database, with as many clients. Both take turns, round after
round, so that what else the machine does weighs on both; all of it shares the machine: clients and model, too.
Messages aren't embedded.

Run it: `python -m benchmarks.load_curve [--seconds S] [--rounds N] [--clients N,M] [--out FILE] [--png FILE] [--json]`.
With `--out` the figures are kept as they come, and a run that was broken off resumes.
"""

import argparse
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.ceiling import TURNS_EACH, Ceiling, Recorded, Transactions, logged
from benchmarks.gpu_report import wide_console
from benchmarks.load import Clients, Request, Run, Turn
from benchmarks.statements import LOG_SETTINGS, logging_statements
from benchmarks.turn_stage import CONTEXT_WINDOW, WARM_UP_TURNS, WORDS
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.checks import APP_ROLE
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.migrate import OWNER_ROLE, prepare_embedded
from memserver.wiring.database import EMBEDDED_DATABASE
from memserver_evals.report.style import COLOURS, as_png, make_figure
from tests.support.long_history import sentences, settle, write_history
from tests.support.servers import (
    ServerProcess,
    Settings,
    create_key,
    memserver,
    scripted_model,
    settings_for,
    temporary_folder,
    wait_for,
)

SETUPS = {"1 worker": (1, 1), "2 workers": (1, 2), "2 hosts": (2, 1)}
"""Hosts, and workers of each."""
START_SECONDS, IDLE_SECONDS = 60, 2
QUEUE_TURNS = 10
"""In each agent's queue before a block; each adds up to TURNS_EACH."""
WARM_UP_SECONDS, WARM_UP_A_CLIENT = 2.0, 0.02
"""Left out of each block: connections are made and statements prepared."""
EPOCH = 7_000_000
"""Of the lease in the turn that is recorded: a number that nothing else in it has."""
_QUEUES = f"UPDATE agent_state SET queue_start = (next_turn - {QUEUE_TURNS}) * {PLACES_PER_TURN}"


@dataclass(frozen=True)
class Point:
    """One block of memserver's and one of pgbench's, with as many clients."""

    round: int
    setup: str
    clients: int
    turns_per_s: float
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    """The server's for a turn, all its processes together, without Postgres."""
    errors: int
    ceiling_turns_per_s: float
    ceiling_p50_ms: float
    ceiling_p95_ms: float
    load_average: float
    error: str = ""
    """The most frequent one."""


def rate(done: Transactions, clients: int, seconds: float) -> tuple[float, float, float]:
    """Turns a second, and p50 and p95 in ms, of those that ended in so many seconds after the warm-up."""
    begin = min(end - took for end, took in zip(done.ended, done.took, strict=True))
    begin += warm_up(clients)
    found = [
        took
        for end, took in zip(done.ended, done.took, strict=True)
        if begin <= end < begin + seconds
    ]
    if len(found) < 2:
        return len(found) / seconds, float("nan"), float("nan")
    cuts = statistics.quantiles(found, n=20, method="inclusive")
    return round(len(found) / seconds, 1), round(1000 * cuts[9], 1), round(1000 * cuts[18], 1)


def warm_up(clients: int) -> float:
    """Seconds."""
    return WARM_UP_SECONDS + WARM_UP_A_CLIENT * clients


@dataclass(frozen=True)
class Bench:
    """All that stays while servers come and go."""

    folder: Path
    postgres: EmbeddedPostgres
    settings: Settings
    api_key: str
    agents: Sequence[str]
    texts: Sequence[str]
    ceiling: Ceiling
    clients: Clients

    def measure(self, servers: Sequence[ServerProcess], clients: int, seconds: float) -> Run:
        """A block of memserver's."""
        _execute(self.postgres.url(EMBEDDED_DATABASE), _QUEUES)
        talks = [self._talk(agent, n) for n, agent in enumerate(self.agents)]
        slots = [talks[n::clients] for n in range(clients)]
        length = warm_up(clients) + seconds
        return self.clients.run([server.url for server in servers], "memserver", slots, length)

    def ceiling_of(self, clients: int, seconds: float) -> Transactions:
        """A block of pgbench's."""
        _execute(self.ceiling.superuser_url, _QUEUES)
        return self.ceiling.run(clients, warm_up(clients) + seconds)

    def _talk(self, agent: str, number: int) -> list[Turn]:
        path = f"/v1/agents/{agent}/messages"
        said = [self.texts[(number + n) % len(self.texts)] for n in range(TURNS_EACH)]
        bodies = [json.dumps({"text": text}).encode() for text in said]
        return [Turn((Request(path, body, api_key=self.api_key),)) for body in bodies]


@contextmanager
def bench(agents: int, console: Console) -> Iterator[Bench]:
    """Postgres, the model, agents with a past, and a copy of all this for pgbench."""
    more = {"log_parameter_max_length": "-1", "max_connections": str(agents + 100)}
    with (
        temporary_folder() as folder,
        EmbeddedPostgres(folder / "postgres", settings=LOG_SETTINGS | more) as postgres,
        scripted_model(folder, context_window=CONTEXT_WINDOW) as model,
    ):
        prepare_embedded(postgres.url())
        settings = settings_for(
            model.url,
            home=folder / "home",
            database_url=postgres.url(EMBEDDED_DATABASE, OWNER_ROLE),
            database_app_url=postgres.url(EMBEDDED_DATABASE, APP_ROLE),
            embed_messages=False,
        )
        api_key = create_key(folder, settings)
        texts = sentences(WORDS, seed=0)
        with (
            console.status("agents and their past"),
            memserver(folder, settings) as server,
            httpx2.Client(
                base_url=f"{server.url}/v1", headers={"Authorization": f"Bearer {api_key}"}
            ) as http,
        ):
            ids = [_agent(http, postgres, number, texts) for number in range(agents)]
            settle(postgres.url(EMBEDDED_DATABASE))
            recorded = record(postgres, folder / "postgres" / "server.log", http, ids[0])
        ceiling = Ceiling.copy(postgres, EMBEDDED_DATABASE, recorded, folder, agents)
        clients = Clients(1)
        try:
            yield Bench(folder, postgres, settings, api_key, ids, texts, ceiling, clients)
        finally:
            clients.close()


def _agent(
    http: httpx2.Client, postgres: EmbeddedPostgres, number: int, texts: Sequence[str]
) -> str:
    """An agent that has talked already, by its id; its name is its number, by which pgbench finds it."""
    made = http.post("/agents", json={"name": str(number)}).raise_for_status()
    agent: str = made.json()["id"]
    messages = 2 * QUEUE_TURNS
    for _ in write_history(postgres.url(EMBEDDED_DATABASE), agent, messages, messages, texts):
        pass
    return agent


def record(postgres: EmbeddedPostgres, log: Path, http: httpx2.Client, agent: str) -> Recorded:
    """A turn like the one before it, so that nothing of the background's is among its statements."""
    database, before = postgres.url(EMBEDDED_DATABASE), None
    _execute(database, f"UPDATE agent_state SET lease_epoch = {EPOCH} WHERE agent_id = '{agent}'")
    with logging_statements(postgres.url(), log) as statements:
        for number in range(WARM_UP_TURNS):
            key = f"recorded-{number}"
            statements.skip()
            http.post(
                f"/agents/{agent}/messages",
                json={"text": " ".join(WORDS[:12])},
                headers={"Idempotency-Key": key},
            ).raise_for_status()
            found = logged(statements.text())
            if before == (before := [statement for statement, _ in found]):
                turn, epoch, start = _state(database, agent)
                return Recorded(found, agent, key, turn, epoch, start)
    raise RuntimeError("No two turns had the same statements.")


def _state(database: str, agent: str) -> tuple[int, int, int]:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT done_turn, lease_epoch, queue_start FROM agent_state WHERE agent_id = %s",
            [agent],
        ).fetchone()
    assert row is not None
    return row


def _execute(database: str, statement: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(statement.encode())


def is_idle(server: ServerProcess) -> bool:
    """Whether all its workers have started: one answers while others still do, each with 2 s of CPU."""
    before = server.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return server.cpu_seconds() - before < IDLE_SECONDS / 20


@contextmanager
def serving(on: Bench, setup: str) -> Iterator[list[ServerProcess]]:
    """The hosts of a setup, warm."""
    hosts, workers = SETUPS[setup]
    with ExitStack() as stack:
        servers = []
        for host in range(hosts):
            home = on.folder / f"host-{host}"
            settings = {**on.settings, "home": home}
            made = memserver(on.folder, settings, "--workers", str(workers))
            servers.append(stack.enter_context(made))
            if not wait_for(partial(is_idle, servers[-1]), START_SECONDS):
                raise RuntimeError("The server is still busy, though nobody asks it.")
        on.measure(servers, clients=2 * hosts * workers, seconds=1)
        yield servers


def measure(
    on: Bench, servers: Sequence[ServerProcess], place: tuple[int, str, int], seconds: float
) -> Point:
    """Both sides, the other way round in every other round."""
    number, _, clients = place
    ceiling = on.ceiling_of(clients, seconds) if number % 2 else None
    cpu = sum(server.cpu_seconds() for server in servers)
    run = on.measure(servers, clients, seconds)
    cpu = sum(server.cpu_seconds() for server in servers) - cpu
    ceiling = ceiling or on.ceiling_of(clients, seconds)
    answered = [each for each in run.outcomes if not each.error]
    failed = Counter(each.error for each in run.outcomes if each.error)
    if not answered:
        raise RuntimeError(f"No turn was answered: {run.outcomes[:1]}")
    done = Transactions([each.ended for each in answered], [each.seconds for each in answered])
    return Point(
        *place,
        *rate(done, clients, seconds),
        round(1000 * cpu / len(answered), 2),
        failed.total(),
        *rate(ceiling, clients, seconds),
        round(os.getloadavg()[0], 1),
        next(iter(failed.most_common(1)), ("", 0))[0],
    )


def curve(
    clients: Sequence[int],
    seconds: float,
    rounds: int,
    console: Console,
    out: Path | None = None,
    setups: Sequence[str] = tuple(SETUPS),
) -> list[Point]:
    """All points: those that `out` has, and the others, which it gets as they come."""
    points = []
    if out is not None and out.exists():
        points = [Point(**json.loads(line)) for line in out.read_text().splitlines()]
    known = {(each.round, each.setup, each.clients) for each in points}
    missing = [each for each in product(range(rounds), setups, clients) if each not in known]
    if not missing:
        return points
    with (
        bench(max(clients), console) as on,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=len(missing))
        for (_, setup), places in groupby(missing, key=lambda place: place[:2]):
            with serving(on, setup) as servers:
                for place in places:
                    bar.update(task, description=f"{setup}, {place[2]} clients")
                    points.append(measure(on, servers, place, seconds))
                    bar.advance(task)
                    if out is not None:
                        with out.open("a") as file:
                            file.write(json.dumps(asdict(points[-1])) + "\n")
    return points


def figures(points: Sequence[Point]) -> list[dict[str, Any]]:
    """A row for each setup and number of clients: medians over the rounds, and the ends of what varies."""
    rows = []
    for setup, clients in dict.fromkeys((each.setup, each.clients) for each in points):
        same = [each for each in points if (each.setup, each.clients) == (setup, clients)]
        row: dict[str, Any] = {"setup": setup, "clients": clients, "rounds": len(same)}
        for name in ("turns_per_s", "p50_ms", "p95_ms", "cpu_ms", "load_average"):
            row[name] = round(statistics.median(getattr(each, name) for each in same), 1)
        for name in ("turns_per_s", "p50_ms", "p95_ms"):
            name = f"ceiling_{name}"
            row[name] = round(statistics.median(getattr(each, name) for each in same), 1)
        shares = [each.turns_per_s / each.ceiling_turns_per_s for each in same]
        row["share"] = round(statistics.median(shares), 3)
        row["share_low"], row["share_high"] = round(min(shares), 3), round(max(shares), 3)
        row["errors"] = sum(each.errors for each in same)
        row["error"] = next((each.error for each in same if each.error), "")
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows for people."""
    made = Table(title="Turns a second, and the same statements by pgbench (medians of the rounds)")
    names = ("clients", "setup", "turns/s", "p95 ms", "CPU ms", "pgbench/s", "p95 ms", "share", "")
    for name in names:
        made.add_column(name, justify="left" if name == "setup" else "right")
    for row in sorted(rows, key=lambda row: row["clients"]):
        shown = ("turns_per_s", "p95_ms", "cpu_ms", "ceiling_turns_per_s", "ceiling_p95_ms")
        share = f"{row['share']:.3f} ({row['share_low']:.3f} to {row['share_high']:.3f})"
        errors = f"{row['errors']} errors" if row["errors"] else ""
        values = [f"{row[name]:,g}" for name in shown]
        made.add_row(str(row["clients"]), row["setup"], *values, share, errors)
    return made


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Turns a second and p95 over the number of clients."""
    figure = make_figure(figsize=(11, 4.4), layout="constrained")
    for axes, name, label in zip(
        figure.subplots(1, 2), ("turns_per_s", "p95_ms"), ("turns/s", "p95, ms"), strict=True
    ):
        for colour, setup in zip(COLOURS, SETUPS, strict=False):
            same = [row for row in rows if row["setup"] == setup]
            clients = [row["clients"] for row in same]
            axes.plot(clients, [row[name] for row in same], marker="o", color=colour, label=setup)
            ceiling, label_ = [row[f"ceiling_{name}"] for row in same], f"pgbench beside {setup}"
            axes.plot(clients, ceiling, marker=".", ls=":", color=colour, label=label_)
        axes.set(xscale="log", yscale="log", xlabel="clients", ylabel=label)
        axes.set_xticks(clients, [str(each) for each in clients])
        axes.grid(which="both")
    axes.legend(loc="upper left")
    file.write_bytes(as_png(figure))


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures turns a second beside pgbench.")
    parser.add_argument("--seconds", type=float, default=10, help="of each block")
    parser.add_argument("--rounds", type=int, default=3, help="of all blocks")
    parser.add_argument("--clients", default="1,10,100,500", help="numbers of them")
    parser.add_argument("--out", type=Path, help="file for the figures as they come")
    parser.add_argument("--png", type=Path, help="file for a picture")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    asked = parser.parse_args()
    console = wide_console()
    clients = [int(each) for each in asked.clients.split(",")]
    rows = figures(curve(clients, asked.seconds, asked.rounds, console, asked.out))
    console.print(table(rows))
    if asked.png:
        draw(rows, asked.png)
    if asked.json:
        print(json.dumps({"seconds": asked.seconds, "rows": rows}))


if __name__ == "__main__":
    main()
