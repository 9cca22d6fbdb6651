"""One plain turn, end to end: a user's message comes in, the model calls send_message, the answer goes out.

Everything is what a user runs: `memserver serve` on the embedded Postgres as the application role, the
model behind the OpenAI adapter (scripted, in a process of its own), an API key and an Idempotency-Key on every post.
One client posts one message after the other over one connection. Nothing is evicted from the queue.

With `--messages 100,1000000` turns of agents with so many messages behind them are compared too: `ratio` is
that of the longest history to the shortest, with the same queue. With `--beside CHECKOUT` turns of another
checkout, which has its own `.venv`, are timed in alternating blocks with ours.

Run it: `python -m benchmarks.turn [--turns N] [--beside CHECKOUT] [--messages N,M] [--seed S] [--png FILE] [--json]`.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from benchmarks import beside, long_history
from benchmarks.long_history import Age, Talk
from benchmarks.statements import logging_statements, per_turn, shortened
from benchmarks.turn_stage import WARM_UP_TURNS, WORDS, Stage, Talker, stage
from memserver.wiring.database import EMBEDDED_DATABASE
from tests.support.long_history import sentences, settle, write_history

TURNS_PER_AGENT = 50
"""Turns that are timed on one agent; the next one continues, so that queues don't grow with --turns."""
COUNTED_TURNS = 30
COMPARED_TURNS = 120
"""Turns of each agent that are compared, by the length of their histories."""
QUEUE_MESSAGES = 100
IDLE_SECONDS = 12.0
"""Longer than two of the worker's looks for abandoned work."""
BUDGET = {"sql_statements": 7.0, "cpu_ms": 6.0}


@dataclass(frozen=True)
class Figures:
    """What was measured: statements in a phase of their own, since logging them costs time."""

    sql_statements: float
    cpu_ms: float
    p50_ms: float
    p95_ms: float
    turns: int
    idle_cpu_ms_per_s: float
    load_average: float


def count_statements(on: Stage, console: Console) -> Counter[str]:
    """Statements of COUNTED_TURNS turns; what an idle server sends is left out, whenever it comes."""
    with logging_statements(on.postgres.url(), on.log) as log:
        rest(console, "idle, to know the background's statements")
        background = frozenset(log.read())
        on.talker.meet_agent()
        log.skip()
        turns = []
        for _ in progress(range(COUNTED_TURNS), console, "counting statements"):
            on.talker.turn()
            turns.append(log.read())
    return per_turn(turns, background)


def time_turns(on: Stage, turns: int, console: Console) -> tuple[list[float], float]:
    """Seconds of each turn, and the server's CPU seconds in all of them together."""
    took: list[float] = []
    cpu = 0.0
    for first in progress(range(0, turns, TURNS_PER_AGENT), console, "timing turns"):
        on.talker.meet_agent()
        before = on.server.cpu_seconds()
        took += [on.talker.turn() for _ in range(min(TURNS_PER_AGENT, turns - first))]
        cpu += on.server.cpu_seconds() - before
    return took, cpu


def idle_cpu(on: Stage, console: Console) -> float:
    """CPU seconds that the server takes in a second without work."""
    before, start = on.server.cpu_seconds(), time.monotonic()
    rest(console, "idle, to know the background's CPU")
    return (on.server.cpu_seconds() - before) / (time.monotonic() - start)


def rest(console: Console, why: str) -> None:
    """Let the server idle for IDLE_SECONDS."""
    for _ in progress(range(round(IDLE_SECONDS * 2)), console, why):
        time.sleep(0.5)


def measure(turns: int, seed: int, console: Console) -> tuple[Figures, Counter[str]]:
    """All figures, and how often each statement came in COUNTED_TURNS turns."""
    with stage(seed) as on:
        statements = count_statements(on, console)
        idle = idle_cpu(on, console)
        took, cpu = time_turns(on, turns, console)
    figures = Figures(
        sql_statements=round(statements.total() / COUNTED_TURNS, 2),
        cpu_ms=round(1000 * (cpu - idle * sum(took)) / turns, 2),
        p50_ms=round(1000 * statistics.median(took), 2),
        p95_ms=round(1000 * statistics.quantiles(took, n=20, method="inclusive")[-1], 2),
        turns=turns,
        idle_cpu_ms_per_s=round(1000 * idle, 2),
        load_average=round(os.getloadavg()[0], 2),
    )
    return figures, statements


def compare_histories(lengths: list[int], seed: int, console: Console) -> list[Age]:
    """Turns of agents whose histories have these lengths, on a server of their own."""
    with stage(seed) as on:
        database = on.postgres.url(EMBEDDED_DATABASE)
        texts = sentences(WORDS, seed)
        talks = []
        for length in lengths:
            connection = http.client.HTTPConnection("127.0.0.1", on.server.port, timeout=60)
            talker = Talker(connection, on.talker.api_key, random.Random(seed), said=length)
            agent = talker.create_agent()
            written = write_history(database, agent, length, min(QUEUE_MESSAGES, *lengths), texts)
            with Progress(console=console, transient=True) as bar:
                task = bar.add_task(f"writing {length:,} messages", total=length // 2)
                for some in written:
                    bar.advance(task, some)
            talks.append(Talk(length, talker.turn))
        settle(database)
        for talk in talks:
            for _ in range(WARM_UP_TURNS):
                talk.turn()
        rounds = progress(range(COMPARED_TURNS // long_history.BLOCK), console, "timing histories")
        return long_history.compare(talks, on.server.cpu_seconds, rounds)


def show(figures: Figures, statements: Counter[str], console: Console) -> None:
    """The figures beside their budgets, and a turn's statements."""
    table = Table("figure", "measured", "budget", title=f"One plain turn, of {figures.turns}")
    for name, value in asdict(figures).items():
        budget = BUDGET.get(name)
        mark = "" if budget is None else f"≤ {budget:g} {'✓' if value <= budget else '✗'}"
        table.add_row(name, f"{value:g}", mark)
    console.print(table)
    listed = Table("in a turn", "statement", title="What Postgres logged for the application role")
    for statement, count in statements.items():
        listed.add_row(f"{count / COUNTED_TURNS:.3g} times", shortened(statement))
    console.print(listed)


def progress(items: range, console: Console, what: str) -> Iterable[int]:
    """The items, with a bar that shows how far we are."""
    return track(items, what, console=console, transient=True, disable=not console.is_terminal)


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures one plain turn, end to end.")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    parser.add_argument("--turns", type=int, default=300, help="turns that are timed")
    parser.add_argument("--seed", type=int, default=0, help="of the messages' words")
    parser.add_argument(
        "--messages", type=_lengths, help="lengths of histories to compare: 100,1000000"
    )
    parser.add_argument("--beside", type=Path, help="another checkout to compare turns with")
    parser.add_argument("--png", type=Path, help="file for a picture of that comparison")
    asked = parser.parse_args()
    if asked.turns < 2:
        parser.error("--turns must be 2 or more")
    console = Console()
    figures, statements = measure(asked.turns, asked.seed, console)
    show(figures, statements, console)
    reported: dict[str, object] = asdict(figures)
    if asked.beside:
        rounds = range(max(2, asked.turns // beside.BLOCK))
        pair = beside.compare(asked.beside, progress(rounds, console, "both checkouts"), asked.seed)
        console.print(beside.table(pair))
        reported["beside"] = asdict(pair)
    if asked.messages:
        ages = compare_histories(asked.messages, asked.seed, console)
        console.print(long_history.table(ages))
        reported |= long_history.figures(ages)
        if asked.png:
            long_history.draw(ages, asked.png)
    if asked.json:
        print(json.dumps(reported))


def _lengths(text: str) -> list[int]:
    lengths = sorted({int(part) for part in text.split(",")})
    if len(lengths) < 2 or any(length < 2 or length % 2 for length in lengths):
        raise argparse.ArgumentTypeError("two or more even numbers, such as 100,1000000")
    return lengths


if __name__ == "__main__":
    main()
