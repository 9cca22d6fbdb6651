"""Searching recall storage: how long each kind of search takes, for rare words and common ones.

A thousand agents, one of which has a tenth of all messages. Every search goes the way that a tool's does,
as the application role in its tenant's transaction, one after the other, on a warm server; its time holds
the messages it gives back and the count, but not the embedding of the query. Where the server runs on this machine,
the CPU time of its process is shown beside: on a busy machine that is the better guide. The default is the embedded
Postgres; `--database-url` names an empty database of another server, as its owner.

Run it: `python -m benchmarks.recall [--messages N] [--database-url URL] [--seed S] [--png FILE] [--json]`.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from pydantic import SecretStr
from rich.console import Console
from rich.progress import Progress
from typing_extensions import override

from benchmarks.gpu_report import wide_console
from benchmarks.recall_history import BEGIN, TENANT, YEAR, History, clear, make_history
from benchmarks.recall_report import draw, table
from benchmarks.recall_vectors import MODEL, Vectors, add_vectors, exact_best
from memserver.embeddings.base import Vector
from memserver.memory.paging import ResultPage
from memserver.memory.recall import RecallPage, RecallStorage
from memserver.settings import Settings
from memserver.storage.database import Database, TenantScope, Transaction
from memserver.storage.recall import RecallQuery
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.wire.messages import RecallMode
from memserver.wiring.database import DatabaseUrls, database_urls
from tests.support.servers import PROC, temporary_folder

WARM_UP = 5
T = TypeVar("T")
TARGETS = {"rare": 20.0, "common": 100.0, "hybrid": 100.0}
"""Milliseconds at the 95th percentile; 30 for hybrid on a quick machine with nothing else to do."""

MakeQuery = Callable[[random.Random, History], RecallQuery]


@dataclass(frozen=True)
class Kind:
    """A kind of search.

    Attributes:
        name: what it is called.
        make: makes one.
        target: which target holds for it, if any.
        page: which page is asked for.
        mode: what is looked by.
    """

    name: str
    make: MakeQuery
    target: str | None
    page: int = 1
    mode: RecallMode = "exact"


def kinds() -> list[Kind]:
    """Every kind of search that is measured."""

    def words(rare: bool, **more: Any) -> MakeQuery:  # noqa: ANN401 - fields of a RecallQuery
        def make(chance: random.Random, history: History) -> RecallQuery:
            word = chance.choice(history.rare if rare else history.common)
            return RecallQuery(text=word, **more)

        return make

    def question(chance: random.Random, history: History, **more: Any) -> RecallQuery:  # noqa: ANN401
        chosen = [*chance.choices(history.common, k=4), chance.choice(history.rare)]
        return RecallQuery(text=" ".join(chance.sample(chosen, 5)), **more)

    def span(chance: random.Random, days: int) -> dict[str, Any]:
        since = BEGIN + chance.random() * (YEAR - timedelta(days=days))
        return {"since": since, "until": since + timedelta(days=days)}

    return [
        Kind("rare word", words(True), "rare"),
        Kind("rare word, any case", words(True, ignore_case=True), "rare"),
        Kind("rare word, one role", words(True, roles=("user",)), "rare"),
        Kind("common word", words(False), "common"),
        Kind("common word, any case", words(False, ignore_case=True), "common"),
        Kind("common word, one role", words(False, roles=("user",)), "common"),
        Kind("common word, page 50", words(False), "common", page=50),
        Kind(
            "common word in 30 days",
            lambda chance, history: RecallQuery(
                text=chance.choice(history.common), ignore_case=True, **span(chance, 30)
            ),
            "common",
        ),
        Kind(
            "rare word in 30 days",
            lambda chance, history: RecallQuery(
                text=chance.choice(history.rare), ignore_case=True, **span(chance, 30)
            ),
            "common",
        ),
        Kind("a day", lambda chance, _: RecallQuery(**span(chance, 1)), "common"),
        Kind("a year, page 50", lambda chance, _: RecallQuery(**span(chance, 364)), "common", 50),
        Kind("one role", lambda *_: RecallQuery(roles=("user",)), "common"),
        Kind("everything", lambda *_: RecallQuery(), "common"),
        Kind(
            "two characters",
            lambda chance, _: RecallQuery(text="".join(chance.choices("qwzxkv", k=2))),
            None,
        ),
        Kind("hybrid, rare word", words(True), "hybrid", mode="hybrid"),
        Kind("hybrid, common word", words(False), "hybrid", mode="hybrid"),
        Kind("hybrid, question", question, "hybrid", mode="hybrid"),
        Kind("hybrid, question, page 5", question, "hybrid", page=5, mode="hybrid"),
        Kind(
            "hybrid, question, one role",
            lambda chance, history: question(chance, history, roles=("user",)),
            "hybrid",
            mode="hybrid",
        ),
        Kind(
            "hybrid, question in 30 days",
            lambda chance, history: question(chance, history, **span(chance, 30)),
            "hybrid",
            mode="hybrid",
        ),
        Kind("words", question, "hybrid", mode="words"),
        Kind("meaning", question, "hybrid", mode="meaning"),
    ]


@dataclass(frozen=True)
class Plan:
    """What is asked for on the command line."""

    messages: int
    searches: int
    seed: int
    database_url: str | None


@contextmanager
def database(plan: Plan) -> Iterator[DatabaseUrls]:
    """The embedded Postgres, freshly made, or the server that was named; migrated."""
    with temporary_folder() as home:
        url = None if plan.database_url is None else SecretStr(plan.database_url)
        with database_urls(Settings(_env_file=None, home=home, database_url=url)) as urls:
            yield urls


def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Make the history, search it, and give all figures."""
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with database(plan) as urls, bar:
        task = bar.add_task("making messages", total=plan.messages)
        started = time.monotonic()
        history = make_history(
            urls.owner, plan.messages, plan.seed, lambda count: bar.advance(task, count)
        )
        embedded = sum(history.said[agent] for agent in history.embedded)
        task = bar.add_task("making vectors", total=embedded)
        vectors = Vectors(plan.seed)
        add_vectors(urls.owner, history, vectors, lambda count: bar.advance(task, count))
        load_s = time.monotonic() - started
        steps = bar.add_task("searching", total=2 * len(kinds()))
        try:
            about = _about(urls.owner)
            bench = Bench(history, vectors, plan, lambda: bar.advance(steps, 1))
            rows = asyncio.run(search_all(urls.app, bench))
            recall_at_10 = asyncio.run(agreement(urls, bench))
        finally:
            if plan.database_url is not None:
                clear(urls.owner)
    return {
        **worst(rows),
        "messages": plan.messages,
        "meaning_recall_at_10": recall_at_10,
        "agents": 1 + len(history.small),
        "vectors": embedded,
        **about,
        "load_s": round(load_s, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "searches_of_each_kind": plan.searches,
        "kinds": rows,
    }


@dataclass(frozen=True)
class Bench:
    """What is searched, with what, and who is called for each kind that is done."""

    history: History
    vectors: Vectors
    plan: Plan
    done: Callable[[], None]


async def search_all(app_url: str, bench: Bench) -> list[dict[str, Any]]:
    """A row of figures for each kind of search, of the large agent and of small ones."""
    history, plan = bench.history, bench.plan
    pool = Database(app_url, pool_size=2)
    await pool.open()
    rows = []
    try:
        for kind in kinds():
            small = history.small if kind.mode == "exact" else history.embedded[1:]
            for size, agents in (("large", [history.large]), ("small", small)):
                chance = random.Random(f"{plan.seed} {kind.name} {size}")
                tries = [
                    (chance.choice(agents), kind.make(chance, history))
                    for _ in range(WARM_UP + plan.searches)
                ]
                figures = await _times(pool, kind, tries, bench.vectors)
                rows.append({"kind": kind.name, "agent": size, **figures})
                bench.done()
    finally:
        await pool.close()
    return rows


async def agreement(urls: DatabaseUrls, bench: Bench) -> float:
    """How much of the ten nearest of all messages a search by meaning of the large agent finds."""
    pool = Database(urls.app, pool_size=2)
    await pool.open()
    shared = 0
    vectors = bench.vectors.make(bench.plan.searches)
    try:
        for vector in vectors:
            storage = RecallStorage(OneVector(vector.tolist()))
            found = await _search(
                pool, storage, bench.history.large, RecallQuery(text="x"), "meaning"
            )
            best = exact_best(urls.owner, bench.history.large, vector, 10)
            shared += len(best & {hit.message.position for hit in found.hits})
    finally:
        await pool.close()
    return round(shared / (10 * len(vectors)), 4)


async def _times(
    pool: Database, kind: Kind, tries: Sequence[tuple[UUID, RecallQuery]], vectors: Vectors
) -> dict[str, Any]:
    took: list[float] = []
    cpu: list[float] = []
    totals: list[int] = []
    for (agent, query), vector in zip(tries, vectors.make(len(tries)).tolist(), strict=True):
        storage = RecallStorage(OneVector(vector))
        start = time.perf_counter()
        scope = MeteredScope(pool, TENANT, cpu)
        found = await storage.search(scope, agent, query, ResultPage(kind.page), kind.mode)
        took.append(1000 * (time.perf_counter() - start))
        totals.append(found.total)
    return {
        "p50_ms": round(statistics.median(took[WARM_UP:]), 2),
        "p95_ms": _p95(took[WARM_UP:]),
        "max_ms": round(max(took[WARM_UP:]), 2),
        "cpu_p95_ms": _p95(cpu[WARM_UP:]) if cpu else None,
        "median_total": statistics.median_low(totals),
        "target": kind.target,
    }


def _p95(values: Sequence[float]) -> float:
    return round(statistics.quantiles(values, n=20, method="inclusive")[-1], 2)


def server_cpu_ms(pid: int) -> float | None:
    """What a server's process has computed so far; None if it isn't one of this machine that we may see."""
    try:
        if not (PROC / str(pid) / "comm").read_text().startswith("postgres"):
            return None
        return int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e6
    except OSError:
        return None


async def _search(
    pool: Database, storage: RecallStorage, agent: UUID, query: RecallQuery, mode: RecallMode
) -> RecallPage:
    return await storage.search(TenantScope(pool, TENANT), agent, query, ResultPage(1), mode)


@dataclass(frozen=True)
class MeteredScope(TenantScope):
    """Notes what the server's process computes for each read, in milliseconds."""

    cpu: list[float]

    @override
    async def read(self, action: Callable[[Transaction], Awaitable[T]]) -> T:
        async def metered(tx: Transaction) -> T:
            before = server_cpu_ms(tx.info.backend_pid)
            found = await action(tx)
            after = server_cpu_ms(tx.info.backend_pid)
            if before is not None and after is not None:
                self.cpu.append(after - before)
            return found

        return await super().read(metered)


class OneVector(HashingEmbedder):
    """Gives every text the same vector, which was made before."""

    def __init__(self, vector: list[float]) -> None:
        super().__init__(len(vector), model=MODEL)
        self._vector_of_all = vector

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._vector_of_all for _ in texts]


def worst(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The worst 95th percentile over sizes of agents, of all kinds and by target."""
    figures: dict[str, Any] = {"p95_ms": max(row["p95_ms"] for row in rows if row["target"])}
    for name, target in TARGETS.items():
        figures[f"{name}_p95_ms"] = max(row["p95_ms"] for row in rows if row["target"] == name)
        cpu = [row["cpu_p95_ms"] for row in rows if row["target"] == name and row["cpu_p95_ms"]]
        figures[f"{name}_cpu_p95_ms"] = max(cpu, default=None)
        figures[f"{name}_target_ms"] = target
    return figures


def _about(owner_url: str) -> dict[str, Any]:
    """What the server is, and how much room the history takes."""
    with psycopg.connect(owner_url) as connection:
        row = connection.execute(
            """SELECT current_setting('server_version'),
                      pg_table_size('messages'), pg_indexes_size('messages'),
                      pg_total_relation_size('recall_blocks'), pg_total_relation_size('message_words')
                          + pg_total_relation_size('message_word_shares')"""
        ).fetchone()
    assert row is not None
    names = ("messages_mb", "message_indexes_mb", "blocks_mb", "words_mb")
    sizes = {name: round(size / 1e6, 1) for name, size in zip(names, row[1:], strict=True)}
    return {"postgres": row[0], **sizes}


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures searches of recall storage.")
    parser.add_argument("--messages", type=int, default=100_000, help="of all agents together")
    parser.add_argument("--searches", type=int, default=40, help="of each kind and size of agent")
    parser.add_argument("--seed", type=int, default=0, help="of messages and searches")
    parser.add_argument("--database-url", help="an empty database, as its owner")
    parser.add_argument("--png", type=Path, help="draw the figures into this file")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    asked = parser.parse_args()
    if asked.messages < 10_000 or asked.searches < 2:
        parser.error("--messages must be 10000 or more, --searches 2 or more")
    console = wide_console()
    plan = Plan(asked.messages, asked.searches, asked.seed, asked.database_url)
    figures = measure(plan, console)
    console.print(table(figures, TARGETS))
    if asked.png is not None:
        draw(figures, TARGETS, asked.png)
    if asked.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
