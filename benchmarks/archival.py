"""Archival search in collections of every size at once, beside a thousand other tenants in the same tables.

Vectors are generated: clusters around shared centres, of 32 inner dimensions, beside texts of words whose
frequency falls as in a language (Zipf). They come in interleaved, by the product's own insertion, as the
application role under row-level security; the upkeep job then gives large collections their index. A search
is the product's own, without the embedding of the query: its transactions, its count, its passages. Recall
is against the database's own exact scan. Afterwards a part of each collection is deleted, changed and
inserted again, and all is measured again.

Run it: `python -m benchmarks.archival [--passages 100000] [--seed S] [--json] [--png FILE]`.
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from pgvector import HalfVector
from rich.console import Console
from rich.progress import track
from typing_extensions import override

from benchmarks.archival_report import draw, table
from benchmarks.generated import DIMENSION, GeneratedPassages
from benchmarks.gpu_report import wide_console
from memserver.embeddings.base import Embedder, Vector
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.memory.archival import ArchivalQuery, ArchivalStorage
from memserver.memory.paging import ResultPage
from memserver.memory.vector_upkeep import VectorUpkeep
from memserver.storage import collections, passages
from memserver.storage.checks import APP_ROLE
from memserver.storage.collections import CollectionRow, NewCollection
from memserver.storage.database import Database, TenantScope, Transaction
from memserver.storage.ids import new_id
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from memserver.storage.passages import NewPassage, PassageChange
from memserver.wire.archival import SearchMode
from tests.support.servers import PROC, temporary_folder

SIZES = (100, 1_000, 5_000, 10_000, 100_000, 1_000_000)
OTHER_TENANTS = 1_000
OTHERS_HAVE = (10, 200)
"""Passages of another tenant: from, to, evenly on a logarithmic scale."""
AT_ONCE = 1_000
WARM_UP = 5
TARGET = {"p95_ms": 15.0, "recall_at_10": 0.99}
MODEL = "generated"
TENANT = "measured"


@dataclass
class Measured:
    """A collection that is measured, and what its passages are generated from."""

    size: int
    collection: UUID
    generated: GeneratedPassages
    ids: list[UUID]


@dataclass(frozen=True)
class Figures:
    """What was measured of one collection, before (`changed` false) or after changes."""

    size: int
    changed: bool
    recall_at_10: float
    p50_ms: float
    p95_ms: float
    cpu_p50_ms: float
    cpu_p95_ms: float
    hybrid_p50_ms: float
    hybrid_p95_ms: float
    hybrid_cpu_p50_ms: float
    hybrid_cpu_p95_ms: float


class Prepared(Embedder):
    """Answers with the vector of the query at hand, at once."""

    def __init__(self) -> None:
        self.model = MODEL
        self.dimension = DIMENSION
        self.window = 256
        self.vector: Vector = []

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Texts are taken as they are: none is too long."""
        return [0 for _ in texts]

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self.vector for _ in texts]

    @override
    async def check(self) -> None:
        """Is always there."""

    @override
    async def aclose(self) -> None:
        return None


@dataclass(frozen=True)
class Stage:
    """The database and what works on it."""

    database: Database
    superuser: str
    console: Console
    seed: int


@asynccontextmanager
async def stage(seed: int, console: Console) -> AsyncIterator[Stage]:
    """A fresh embedded Postgres as memserver starts it, migrated."""
    with temporary_folder() as home, EmbeddedPostgres(home / "postgres") as server:
        prepare_embedded(server.url(), "archival")
        migrate(server.url("archival", OWNER_ROLE))
        database = Database(server.url("archival", APP_ROLE), pool_size=4)
        await database.open()
        try:
            yield Stage(database, server.url("archival"), console, seed)
        finally:
            await database.close()


async def make_collection(on: Stage, tenant: str, name: str) -> UUID:
    """A shared collection of a tenant."""
    async with on.database.tenant(tenant) as tx:
        new = NewCollection(name, MODEL, DIMENSION)
        return (await collections.create(tx, tenant, new)).id


async def load(on: Stage, sizes: Sequence[int]) -> list[Measured]:
    """Insert everything, a thousand passages at a time, in random order among the collections."""
    chooser = random.Random(on.seed)
    measured = []
    batches: list[tuple[str, Measured, int]] = []
    for size in sizes:
        made = Measured(
            size,
            await make_collection(on, TENANT, f"of {size}"),
            GeneratedPassages(on.seed, size, size),
            [],
        )
        measured.append(made)
        batches += [(TENANT, made, min(AT_ONCE, size - start)) for start in range(0, size, AT_ONCE)]
    low, high = np.log(OTHERS_HAVE)
    for number in range(OTHER_TENANTS):
        tenant = f"other-{number}"
        size = round(float(np.exp(chooser.uniform(low, high))))
        other = Measured(
            size,
            await make_collection(on, tenant, "mine"),
            GeneratedPassages(on.seed, 10_000_000 + number, size),
            [],
        )
        batches.append((tenant, other, size))
    chooser.shuffle(batches)
    for tenant, where, count in progress(batches, on.console, "inserting"):
        await insert(on, tenant, where, count)
    return measured


async def insert(on: Stage, tenant: str, where: Measured, count: int) -> None:
    """The next passages of a collection."""
    vectors, texts = where.generated.next(count)
    new = [
        NewPassage(text, vector, id=new_id())
        for text, vector in zip(texts, vectors.tolist(), strict=True)
    ]
    async with on.database.tenant(tenant) as tx:
        stored = await passages.insert(tx, where.collection, new, model=MODEL)
    where.ids += [UUID(passage.id) for passage in stored]


async def give_indexes(on: Stage, measured: Sequence[Measured]) -> None:
    """What the upkeep job does for collections that have grown."""
    upkeep = VectorUpkeep(on.database, ArchivalStorage(Prepared()).embedder_of, index_memory=2048)
    for each in measured:
        if each.size <= passages.MOST_TOGETHER:
            continue
        await upkeep.begin(TENANT, each.collection, Prepared())
        with on.console.status(f"building the index of {each.size} passages") as status:
            while stands := await upkeep.step(TENANT, each.collection):
                status.update(f"index of {each.size} passages: {stands.state} {stands.stored}")


async def change(on: Stage, each: Measured, seed: int) -> None:
    """Delete a part of a collection, change another one, and insert as many again."""
    chooser = random.Random(seed)
    count = min(each.size // 10, 2_000)
    chosen = chooser.sample(each.ids, 2 * count)
    for passage_id in progress(chosen[:count], on.console, f"deleting from {each.size}"):
        async with on.database.tenant(TENANT) as tx:
            await passages.delete(tx, each.collection, passage_id)
    gone = set(chosen[:count])
    each.ids = [passage_id for passage_id in each.ids if passage_id not in gone]
    vectors, texts = each.generated.next(count)
    renewed = list(zip(chosen[count:], vectors.tolist(), texts, strict=True))
    for passage_id, vector, text in progress(renewed, on.console, f"changing {each.size}"):
        async with on.database.tenant(TENANT) as tx:
            new = PassageChange(text=text, embedding=vector)
            await passages.update(tx, each.collection, passage_id, new, model=MODEL)
    for start in range(0, count, AT_ONCE):
        await insert(on, TENANT, each, min(AT_ONCE, count - start))


async def measure(on: Stage, each: Measured, queries: int, *, changed: bool) -> Figures:
    """Time searches and compare what they find with the exact scan."""
    embedder = Prepared()
    archival = ArchivalStorage(embedder)
    vectors, texts = each.generated.queries(queries + WARM_UP)
    took: dict[SearchMode, list[tuple[float, float]]] = {"vector": [], "hybrid": []}
    recalls = []
    asked = list(zip(vectors.tolist(), texts, strict=True))
    backends = await backends_of(on)
    for vector, text in progress(asked, on.console, f"searching {each.size}"):
        embedder.vector = vector
        for mode, times in took.items():
            cpu, start = cpu_seconds(backends), time.perf_counter()
            found = await search(on, archival, each, ArchivalQuery(text, mode=mode))
            times.append((time.perf_counter() - start, cpu_seconds(backends) - cpu))
            if mode == "vector":
                truth = await exact(on, each, vector)
                recalls.append(len(truth & found) / len(truth))
    figures = [*percentiles(took["vector"]), *percentiles(took["hybrid"])]
    return Figures(each.size, changed, round(float(np.mean(recalls)), 4), *figures)


async def backends_of(on: Stage) -> list[int]:
    """The processes of the server that serve the pool's connections."""
    query = "SELECT pid FROM pg_stat_activity WHERE usename = current_user"
    async with on.database.across_tenants() as tx:
        return [row["pid"] for row in await (await tx.execute(query)).fetchall()]


def cpu_seconds(backends: Sequence[int]) -> float:
    """What this process and the database's have used of the CPU: the same however busy the machine is."""
    spent = time.process_time_ns()
    for pid in backends:
        with suppress(OSError):  # the pool has closed that connection
            spent += int((PROC / str(pid) / "schedstat").read_text(encoding="ascii").split()[0])
    return spent / 1e9


async def search(
    on: Stage, archival: ArchivalStorage, each: Measured, query: ArchivalQuery
) -> set[str]:
    """The ids on the first page of a search."""

    async def searched(tx: Transaction) -> list[CollectionRow]:
        return [await collections.get(tx, each.collection)]

    page = await archival.search(TenantScope(on.database, TENANT), searched, query, ResultPage())
    return {hit.passage.id for hit in page.found}


async def exact(on: Stage, each: Measured, vector: Vector) -> set[str]:
    """The ids of the ten nearest, each vector compared."""
    async with on.database.tenant(TENANT) as tx:
        collection = await collections.get(tx, each.collection)
        cursor = await tx.execute(
            "SELECT passage_id FROM nearest_one_by_one(%s, %s, %b, '{}', 10)",
            [collection.vectors_table, [each.collection], HalfVector(list(vector))],
        )
        return {str(row["passage_id"]) for row in await cursor.fetchall()}


def percentiles(times: Sequence[tuple[float, float]]) -> list[float]:
    """Median and 95th percentile of the time and of the CPU's, in milliseconds; the first ones warm up."""
    rows = np.asarray(times[WARM_UP:]) * 1000
    return [
        round(float(value), 2)
        for column in (0, 1)
        for value in np.percentile(rows[:, column], [50, 95])
    ]


def sizes_on_disk(on: Stage) -> dict[str, int]:
    """Bytes: of the whole database, of passages, and of vectors with their indexes."""
    query = """SELECT pg_database_size(current_database()),
        pg_total_relation_size('passages'),
        (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
         WHERE relkind = 'r' AND relname LIKE 'vectors%')"""
    with psycopg.connect(on.superuser) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return {"database": int(row[0]), "passages": int(row[1]), "vectors": int(row[2])}


async def run(asked: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Everything, as one JSON object."""
    sizes = sorted({*(size for size in SIZES if size <= asked.passages), asked.passages})
    async with stage(asked.seed, console) as on:
        start = time.monotonic()
        measured = await load(on, sizes)
        loaded = time.monotonic()
        await give_indexes(on, measured)
        indexed = time.monotonic()
        figures = [await measure(on, each, asked.queries, changed=False) for each in measured]
        for each in measured:
            await change(on, each, asked.seed)
        figures += [await measure(on, each, asked.queries, changed=True) for each in measured]
        disk = sizes_on_disk(on)
    return {
        "p95_ms": max(figure.p95_ms for figure in figures),
        "recall_at_10": min(figure.recall_at_10 for figure in figures),
        "passages": asked.passages,
        "other_tenants": OTHER_TENANTS,
        "queries": asked.queries,
        "seed": asked.seed,
        "insert_seconds": round(loaded - start, 1),
        "index_seconds": round(indexed - loaded, 1),
        "build_seconds": round(indexed - start, 1),
        "bytes": disk,
        "load_average": round(os.getloadavg()[0], 2),
        "sizes": [asdict(figure) for figure in figures],
    }


def progress(items: Sequence[Any], console: Console, what: str) -> Iterable[Any]:
    """The items, with a bar that shows how far we are; without a terminal, a line now and then."""
    if console.is_terminal:
        return track(items, what, console=console, transient=True)
    return _reported(items, what)


def _reported(items: Sequence[Any], what: str) -> Iterator[Any]:
    next_reported = time.monotonic() + 30
    for number, item in enumerate(items):
        if time.monotonic() > next_reported:
            print(f"{what}: {number} of {len(items)}", flush=True)
            next_reported = time.monotonic() + 30
        yield item


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures archival search at every size.")
    parser.add_argument("--passages", type=int, default=100_000, help="of the largest collection")
    parser.add_argument("--queries", type=int, default=100, help="for each collection")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is generated")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    parser.add_argument("--png", type=Path, help="draw a picture into this file")
    asked = parser.parse_args()
    if asked.passages < 100:
        parser.error("--passages must be 100 or more")
    console = wide_console()
    result = asyncio.run(run(asked, console))
    console.print(table(result, TARGET))
    if asked.png:
        draw(result, TARGET, asked.png)
    if asked.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
