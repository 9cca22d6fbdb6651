"""How well archival search finds the passage that answers: by vector, by words, by both.

On real data (see the README beside it), read as `memserver eval retrieval` reads it: NaturalQuestions passages, turns of
MSC dialogues, turns of LoCoMo conversations; and on questions in ten languages (`benchmarks/multilingual`), which need no
--data. Each corpus becomes a collection of its own with the default settings, in an embedded Postgres; what stores and
searches is the product's own code, as the application role, with the product's default embedder. Recall@k is the share of
a question's evidence among the first k results, averaged over the questions.

Run it: `python -m benchmarks.retrieval [--data FOLDER] [--sets NAME …] [--cache FOLDER] [--json] [--png FILE]`. The cache
keeps the vectors, which take minutes of CPU.
"""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, get_args
from uuid import UUID

from rich.console import Console
from rich.progress import track
from typing_extensions import override

from benchmarks.embedding_cache import vectors_of
from benchmarks.gpu_report import wide_console
from benchmarks.multilingual import corpora as multilingual
from benchmarks.retrieval_report import draw, table
from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.memory.archival import ArchivalQuery, ArchivalStorage
from memserver.memory.paging import ResultPage
from memserver.memory.vector_upkeep import VectorUpkeep
from memserver.storage import collections
from memserver.storage.checks import APP_ROLE
from memserver.storage.collections import CollectionRow, NewCollection
from memserver.storage.database import Database, LazyTransaction, TenantScope, Transaction
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from memserver.storage.passages import NewPassage
from memserver.wire.archival import SearchMode
from memserver_evals.tasks.retrieval import AT, DATA_SETS, Asked, Corpus
from tests.support.servers import temporary_folder

AT_ONCE = 1_000
TENANT = "retrieval"
MODES: tuple[SearchMode, ...] = get_args(SearchMode)


class KnownTexts(Embedder):
    """Answers with vectors that were made before."""

    def __init__(self, made_by: Embedder) -> None:
        self.model = made_by.model
        self.dimension = made_by.dimension
        self.window = 256
        self.vectors: dict[str, Vector] = {}

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Texts are taken as they are: none is too long."""
        return [0 for _ in texts]

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self.vectors[text] for text in texts]

    @override
    async def check(self) -> None:
        """Is always there."""

    @override
    async def aclose(self) -> None:
        return None


@dataclass(frozen=True)
class Stage:
    """The database, the search, and where vectors come from."""

    database: Database
    embedder: Embedder
    known: KnownTexts
    archival: ArchivalStorage
    upkeep: VectorUpkeep
    console: Console
    cache: Path | None


@dataclass(frozen=True)
class Result:
    """The recalls at AT of one question, asked in one mode."""

    corpus: str
    mode: SearchMode
    question: Asked
    recalls: list[float]


@asynccontextmanager
async def stage(console: Console, cache: Path | None) -> AsyncIterator[Stage]:
    """A fresh embedded Postgres as memserver starts it, migrated."""
    with temporary_folder() as home, EmbeddedPostgres(home / "postgres") as server:
        prepare_embedded(server.url(), "retrieval")
        migrate(server.url("retrieval", OWNER_ROLE))
        database = Database(server.url("retrieval", APP_ROLE), pool_size=2)
        embedder = SentenceTransformersEmbedder()
        known = KnownTexts(embedder)
        archival = ArchivalStorage(known)
        upkeep = VectorUpkeep(database, archival.embedder_of)
        await database.open()
        try:
            yield Stage(database, embedder, known, archival, upkeep, console, cache)
        finally:
            await database.close()
            await embedder.aclose()


async def measure(on: Stage, data_set: str, corpora: Sequence[Corpus]) -> list[Result]:
    """Recall of each mode for each question of a data set."""
    texts = [document.shown for corpus in corpora for document in corpus.documents]
    questions = [question.text for corpus in corpora for question in corpus.questions]
    for kind in (texts, questions):
        vectors = await vectors_of(kind, on.embedder, on.cache, on.console, data_set)
        on.known.vectors.update(zip(kind, vectors, strict=True))
    found = []
    for corpus in track(corpora, data_set, console=on.console, transient=True):
        collection, ids = await store(on, corpus)
        for question in corpus.questions:
            for mode in MODES:
                recalls = await recall(on, collection, ids, question, mode)
                found.append(Result(corpus.name, mode, question, recalls))
    return found


def rows_of(data_set: str, found: Sequence[Result]) -> list[dict[str, Any]]:
    """The means of each mode; those of the questions that are marked hard once more; of languages, each by itself."""
    hard = [each for each in found if each.question.hard]
    groups = {data_set: [*found], f"{data_set} (hard)": hard}
    if data_set == multilingual.NAME:
        for each in found:
            groups.setdefault(each.corpus, []).append(each)
    return [
        {
            "data": name,
            "mode": mode,
            "questions": len(chosen),
            **{f"recall_at_{k}": round(mean(each), 3) for k, each in zip(AT, columns, strict=True)},
        }
        for name, results in groups.items()
        for mode in MODES
        if (chosen := [each.recalls for each in results if each.mode == mode])
        for columns in [zip(*chosen, strict=True)]
    ]


async def store(on: Stage, corpus: Corpus) -> tuple[UUID, dict[str, str]]:
    """The corpus as a collection; answers the id of each passage's document."""
    async with on.database.tenant(TENANT) as tx:
        new = NewCollection(corpus.name, on.known.model, on.known.dimension)
        collection = (await collections.create(tx, TENANT, new)).id

    async def place(tx: Transaction) -> CollectionRow:
        return await collections.get(tx, collection)

    ids = {}
    for start in range(0, len(corpus.documents), AT_ONCE):
        documents = corpus.documents[start : start + AT_ONCE]
        texts = [NewPassage(document.shown) for document in documents]
        async with LazyTransaction(on.database, TENANT) as transaction:
            stored = await on.archival.insert(transaction, place, texts)
        ids.update({new.id: document.id for new, document in zip(stored, documents, strict=True)})
    await on.upkeep.begin(TENANT, collection, on.known)
    while await on.upkeep.step(TENANT, collection):
        pass
    return collection, ids


async def recall(
    on: Stage, collection: UUID, ids: dict[str, str], question: Asked, mode: SearchMode
) -> list[float]:
    """The share of the evidence among the first results, for each of AT."""

    async def searched(tx: Transaction) -> list[CollectionRow]:
        return [await collections.get(tx, collection)]

    wanted = ArchivalQuery(question.text, mode=mode)
    page = await on.archival.search(
        TenantScope(on.database, TENANT), searched, wanted, ResultPage(size=max(AT))
    )
    found = [ids[hit.passage.id] for hit in page.found]
    return [len(question.evidence & set(found[:k])) / len(question.evidence) for k in AT]


async def run(asked: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Everything, as one JSON object."""
    rows = []
    async with stage(console, asked.cache) as on:
        for data_set in asked.sets:
            if data_set == multilingual.NAME:
                corpora = list(multilingual.multilingual_corpora())
            else:
                corpora = list(DATA_SETS[data_set](asked.data))
            rows += rows_of(data_set, await measure(on, data_set, corpora))
    return {"rows": rows, "load_average": round(os.getloadavg()[0], 2)}


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures how well archival search finds.")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    sets = [*DATA_SETS, multilingual.NAME]
    parser.add_argument("--sets", nargs="+", choices=sets, default=sets, help="left out: all")
    parser.add_argument("--cache", type=Path, help="folder that keeps the vectors")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    parser.add_argument("--png", type=Path, help="draw a picture into this file")
    asked = parser.parse_args()
    if asked.data is None and asked.sets != [multilingual.NAME]:
        parser.error("the sets of others need --data, the folder that has them")
    console = wide_console()
    result = asyncio.run(run(asked, console))
    console.print(table(result["rows"]))
    if asked.png:
        draw(result["rows"], asked.png)
    if asked.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
