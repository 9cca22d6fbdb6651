"""Ingestion, end to end, against the embedder alone on the same chunks.

Everything is what a user runs: `memserver serve` on the embedded Postgres as the application role, with
the local embedding model; a file is posted over HTTP and followed until its last passage is stored. Then the
model alone embeds the passages' texts, all at once, in this process. Both take turns, round after round, so
that a machine that is busy for a while slows both down.

The text is real: a file that is named, or else Python's language reference, which comes with Python.

Run it: `python -m benchmarks.ingest [FILE] [--passages N] [--rounds N] [--seed S] [--json] [--png FILE]`.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.wiring.database import EMBEDDED_DATABASE
from tests.support.servers import (
    ServerProcess,
    memserver,
    scripted_model,
    settings_for,
    temporary_folder,
    wait_for,
)

TARGET = 0.95
CHARACTERS = 700
"""Of a passage, about; only decides how much text a round gets."""
WARM_UP = "Warm up. " * 400
READY_SECONDS = 120
LOOK_SHARE = 0.1
"""Of the time so far, between two questions of how far a document is: the answers take the server's, too.
When it was done, the document says itself."""


@dataclass(frozen=True)
class Round:
    """One file through both ways."""

    passages: int
    characters: int
    reading_s: float
    pipeline_s: float
    embedder_s: float
    pipeline_cpu_s: float
    embedder_cpu_s: float


@dataclass(frozen=True)
class Figures:
    """What was measured, over all rounds; `cpu_ratio` compares CPU seconds, the database's left out."""

    ratio: float
    passages_per_s: float
    embedder_per_s: float
    cpu_ratio: float
    passages: int
    rounds: Sequence[Round]
    seed: int
    load_average: float


@dataclass(frozen=True)
class Source:
    """Pieces of text that files are made of."""

    suffix: str
    pieces: Sequence[str]

    def file(self, first: int, characters: int) -> tuple[str, int]:
        """Enough pieces from the first one on, and where the next file begins."""
        taken, at = [], first
        while characters > 0:
            piece = self.pieces[at % len(self.pieces)]
            taken.append(piece)
            characters -= len(piece)
            at += 1
        return ("\n" if self.suffix == ".jsonl" else "\n\n").join(taken), at


@dataclass(frozen=True)
class Server:
    """The running server, as this client and the database see it."""

    process: ServerProcess
    connection: http.client.HTTPConnection
    database: str

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        """One request; the answer has to be a success."""
        self.connection.request(method, f"/v1/{path}", body, {"Content-Type": kind})
        response = self.connection.getresponse()
        content = response.read()
        if response.status not in {200, 201, 202}:
            raise RuntimeError(f"{response.status} from {path}: {content!r}")
        answer: dict[str, Any] = json.loads(content)
        return answer

    def take_in(
        self, agent: str, text: str, suffix: str, progress: Progress
    ) -> tuple[str, float, float]:
        """Post a file and follow it: its document, the seconds till it was read, and till it was done."""
        self.connection.close()  # the server may have closed it while we embedded; this opens it again
        task = progress.add_task("taking it in", total=None)
        start = time.time()
        path = f"agents/{agent}/documents?name=text{suffix}"
        document, read = self.ask("POST", path, text.encode(), "text/plain"), 0.0
        while document["state"] not in {"done", "failed"}:
            time.sleep(max(0.1, LOOK_SHARE * (time.time() - start)))
            document = self.ask("GET", f"documents/{document['id']}")
            if document["chunks_total"] and not read:
                read = time.time() - start
            progress.update(task, total=document["chunks_total"], completed=document["chunks_done"])
        progress.remove_task(task)
        if document["state"] == "failed":
            raise RuntimeError(f"Not taken in: {document['error']}")
        took = datetime.fromisoformat(document["finished_at"]).timestamp() - start
        return document["id"], read or took, took

    def passages(self, document: str) -> list[str]:
        """The texts of a document's passages, in their order."""
        with psycopg.connect(self.database) as connection:
            rows = connection.execute(
                "SELECT content FROM passages WHERE metadata->>'document' = %s ORDER BY id",
                [document],
            )
            return [text for (text,) in rows.fetchall()]


def source(path: Path | None, seed: int) -> Source:
    """The pieces of a file, or of Python's language reference, shuffled."""
    if path is None:
        suffix, text = ".txt", "\n\n".join(topics.values())
    else:
        suffix, text = path.suffix, path.read_text(encoding="utf-8")
    pieces = text.split("\n") if suffix == ".jsonl" else re.split(r"\n\s*\n", text)
    pieces = [piece for piece in pieces if piece.strip()]
    random.Random(seed).shuffle(pieces)
    return Source(suffix, pieces)


def measure(texts: Source, passages: int, rounds: int, console: Console) -> list[Round]:
    """All rounds on one server."""
    with temporary_folder() as home:
        postgres = EmbeddedPostgres(home / "postgres")
        with postgres, scripted_model(home) as model:
            settings = settings_for(model.url, home=home)
            for name in [name for name in settings if name.startswith("embedding")]:
                del settings[name]
            with (
                memserver(home, settings) as process,
                closing(http.client.HTTPConnection("127.0.0.1", process.port)) as connection,
                Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
            ):
                if not wait_for(lambda: process.healthy("/v1/ready"), READY_SECONDS):
                    raise RuntimeError(f"Not ready:\n{process.log_text()}")
                server = Server(process, connection, postgres.url(EMBEDDED_DATABASE))
                return _rounds(server, texts, passages // rounds, rounds, bar)


def _rounds(
    server: Server, texts: Source, passages: int, rounds: int, bar: Progress
) -> list[Round]:
    embedder = SentenceTransformersEmbedder()
    agent = server.ask("POST", "agents", b"{}")["id"]
    found, at = [], 0
    with asyncio.Runner() as runner:
        warm, *_ = server.take_in(agent, WARM_UP, ".txt", bar)
        runner.run(embedder.embed(server.passages(warm)))
        for _ in bar.track(range(rounds), description="rounds"):
            text, at = texts.file(at, passages * CHARACTERS)
            cpu = server.process.cpu_seconds()
            document, reading, took = server.take_in(agent, text, texts.suffix, bar)
            cpu = server.process.cpu_seconds() - cpu
            chunks = server.passages(document)
            start, own = time.perf_counter(), time.process_time()
            runner.run(embedder.embed(chunks))
            alone, own = time.perf_counter() - start, time.process_time() - own
            found.append(Round(len(chunks), len(text), reading, took, alone, cpu, own))
        runner.run(embedder.aclose())
    return found


def figures(rounds: Sequence[Round], seed: int) -> Figures:
    """All rounds together."""
    passages = sum(each.passages for each in rounds)
    pipeline = passages / sum(each.pipeline_s for each in rounds)
    alone = passages / sum(each.embedder_s for each in rounds)
    return Figures(
        ratio=round(pipeline / alone, 3),
        passages_per_s=round(pipeline, 1),
        embedder_per_s=round(alone, 1),
        cpu_ratio=round(
            sum(each.embedder_cpu_s for each in rounds)
            / sum(each.pipeline_cpu_s for each in rounds),
            3,
        ),
        passages=passages,
        rounds=rounds,
        seed=seed,
        load_average=round(os.getloadavg()[0], 2),
    )


def show(result: Figures, console: Console) -> None:
    """A row for each round, and one for all."""
    names = ("passages", "read after s", "pipeline/s", "alone/s", "ratio", "ratio of CPU")
    table = Table("round", *names, title=f"Ingestion against the embedder alone, ≥ {TARGET:g}")
    for number, each in enumerate(result.rounds, 1):
        table.add_row(
            str(number),
            str(each.passages),
            f"{each.reading_s:.2f}",
            f"{each.passages / each.pipeline_s:.1f}",
            f"{each.passages / each.embedder_s:.1f}",
            f"{each.embedder_s / each.pipeline_s:.3f}",
            f"{each.embedder_cpu_s / each.pipeline_cpu_s:.3f}",
        )
    mark = "✓" if result.ratio >= TARGET else "✗"
    table.add_row(
        "all",
        str(result.passages),
        "",
        f"{result.passages_per_s:g}",
        f"{result.embedder_per_s:g}",
        f"{result.ratio:g} {mark}",
        f"{result.cpu_ratio:g}",
    )
    console.print(table)


def draw(result: Figures, file: Path) -> None:
    """Passages a second, both ways, round by round. Needs matplotlib, of the extra eval."""
    import matplotlib as mpl  # noqa: PLC0415 - of an extra

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    numbers = range(1, len(result.rounds) + 1)
    alone = [each.passages / each.embedder_s for each in result.rounds]
    whole = [each.passages / each.pipeline_s for each in result.rounds]
    axes.bar([number - 0.2 for number in numbers], alone, 0.4, label="embedder alone")
    bars = axes.bar([number + 0.2 for number in numbers], whole, 0.4, label="whole pipeline")
    axes.bar_label(bars, [f"{b / a:.2f}" for a, b in zip(alone, whole, strict=True)])
    axes.set(
        title=f"Ingestion: {result.ratio:g} of the embedder alone (target ≥ {TARGET:g})",
        xlabel="round",
        ylabel="passages/s",
        xticks=list(numbers),
    )
    axes.legend(loc="lower right")
    axes.grid(axis="y", alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures ingestion against the embedder alone.")
    parser.add_argument("file", type=Path, nargs="?", help="text, Markdown or JSON Lines")
    parser.add_argument("--passages", type=int, default=900, help="about how many, in all rounds")
    parser.add_argument("--rounds", type=int, default=3, help="files, one after the other")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the text's pieces")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    parser.add_argument("--png", type=Path, help="draw the rounds into this file")
    asked = parser.parse_args()
    if asked.rounds < 1 or asked.passages < asked.rounds:
        parser.error("--passages must be no less than --rounds, and --rounds 1 or more")
    console = Console()
    rounds = measure(source(asked.file, asked.seed), asked.passages, asked.rounds, console)
    result = figures(rounds, asked.seed)
    show(result, console)
    if asked.png:
        draw(result, asked.png)
    if asked.json:
        print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
