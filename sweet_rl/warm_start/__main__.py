"""The steps of a warm start: `python -m sweet_rl.warm_start --help`."""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from memserver.embeddings.batching import BatchingEmbedder
from memserver.errors import MemserverError
from memserver.llm.tokens import Remembered
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.tokenizer_file import TokenizerFile
from memserver.wiring.database import database_urls
from memserver.wiring.providers import make_embedder
from memserver.wiring.services import assemble
from sweet_rl import interpolation
from sweet_rl.warm_start import mixing
from sweet_rl.warm_start.chains import write_chains
from sweet_rl.warm_start.corpus import Side, Written, asides, conversations, shelves
from sweet_rl.warm_start.corpus_users import users
from sweet_rl.warm_start.intents import HELD_OUT, TRAINING, Holdout
from sweet_rl.warm_start.reading import lessons_of, lessons_of_passages, small_model_prompts
from sweet_rl.warm_start.report import draw, table
from sweet_rl.warm_start.small_talk import PLAIN, SHORT, ask, on_topic, settle, small_talk
from sweet_rl.warm_start.traces import Recorder, SimulatedClock, Teachers

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)


@app.command()
def replies(
    base_url: Annotated[str, typer.Option(help="An endpoint with the untrained model, …/v1.")],
    model: Annotated[str, typer.Option()] = "SmolLM2-135M-Instruct",
) -> None:
    """Have the untrained model answer the small talk, and keep the half that is most to the point.

    Resumes where it broke off; what was asked before is not asked again.
    """
    asyncio.run(_reply(Endpoint(base_url, "", 120), model))


async def _reply(endpoint: Endpoint, model: str) -> None:
    embedder = make_embedder(Settings())
    choosers = {SHORT: lambda talk: on_topic(talk, embedder), PLAIN: None}
    for manner, choose in choosers.items():
        await ask(endpoint, model, manner)
        kept = await settle(manner, choose)
        typer.echo(f"{manner.kept.name}: {kept} answers")
    await embedder.aclose()


@app.command()
def traces(
    folder: Annotated[Path, typer.Argument(help="Where the traces go.")],
    tokenizer: Annotated[Path, typer.Option(help="The model's folder or tokenizer.json.")],
    count: Annotated[int, typer.Option("--users", help="Conversations for training.")] = 1200,
    tests: Annotated[int, typer.Option(help="Conversations for each of the three tests.")] = 60,
    seed: int = 1,
) -> None:
    """Play synthetic users on a server of its own, and write down what the teacher does."""
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the database ends with us
    asyncio.run(_record(folder, tokenizer, {"train": count} | dict.fromkeys(HELD_OUT, tests), seed))


@app.command()
def mix(
    out: Annotated[Path, typer.Argument(help="Where the mix goes.")],
    folders: Annotated[list[Path], typer.Argument(help="Of `traces`, `people` and `reading`.")],
    seed: int = 1,
) -> None:
    """Mix what a training learns from: repeat what is rare, sample what is plenty."""
    for name, count in mixing.mix(folders, out, seed).items():
        typer.echo(f"{count:7,} {name}")


@app.command()
def widen(
    adapter: Annotated[Path, typer.Argument(help="The adapter.")],
    out: Annotated[Path, typer.Argument(help="Where the wider one goes.")],
    rank: Annotated[int, typer.Option(help="Its rank.")] = 32,
) -> None:
    """Give an adapter a higher rank, to train on from it; it says what it said before."""
    interpolation.widen(adapter, rank, out)


@app.command()
def between(
    first: Annotated[Path, typer.Argument(help="The adapter that a training began with.")],
    second: Annotated[Path, typer.Argument(help="The one that it made.")],
    out: Annotated[Path, typer.Argument(help="Where the one between them goes.")],
    share: Annotated[float, typer.Option(min=0, max=1, help="Of the way to the second.")] = 0.5,
) -> None:
    """Write an adapter between two: it keeps more of what the first could do than the second."""
    interpolation.between(first, second, share, out)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="What a training wrote.")],
    png: Annotated[Path | None, typer.Option(help="File for a picture.")] = None,
) -> None:
    """Show the figures of a training run as a table, and as a picture."""
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    Console().print(table(figures))
    if png is not None:
        draw(figures, png)


@app.command()
def people(
    folder: Annotated[Path, typer.Argument(help="Where the traces go.")],
    tokenizer: Annotated[Path, typer.Option(help="The model's folder or tokenizer.json.")],
    each: Annotated[int, typer.Option(help="Times that each conversation is played.")] = 2,
    part: Annotated[
        str, typer.Option(help="Which part of the corpus: 1/4 is every fourth.")
    ] = "1/1",
    auto_recall: Annotated[
        float, typer.Option(help="Share of the agents with automatic recall.")
    ] = 0.3,
    seed: int = 1,
) -> None:
    """Play the people of the corpus on a server of its own, and write down what the teacher does."""
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    number, parts = (int(each) for each in part.split("/"))
    asyncio.run(_people(folder, tokenizer, (number, parts), each, auto_recall, seed))


@app.command()
def reading(
    folder: Annotated[Path, typer.Argument(help="Where the lessons go.")],
    each: Annotated[int, typer.Option(help="Lessons of each question.")] = 8,
    seed: int = 1,
) -> None:
    """Write lessons in reading and quoting, made of the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    prompts = small_model_prompts()
    sides: dict[Side, str] = {"train": "train-reading", "validation": "reading"}
    for side, name in sides.items():
        random = Random(f"{seed} {side}")
        most = each if side == "train" else 1
        talks = [talk for talk in (*conversations(), *asides()) if talk.side == side]
        chains = [chain for talk in talks for chain in lessons_of(talk, random, prompts, each=most)]
        for shelf in shelves(side):
            chains += lessons_of_passages(shelf, random, prompts, each=max(1, most // 2))
        path = folder / f"{name}.jsonl.gz"
        typer.echo(f"{path}: {write_chains(path, chains)} lessons of {len(talks)} conversations")


async def _people(
    folder: Path, tokenizer: Path, part: tuple[int, int], each: int, auto_recall: float, seed: int
) -> None:
    number, parts = part
    sides: tuple[Side, ...] = ("train", "validation") if number == 1 else ("train",)
    written: dict[str, list[Written]] = {"people": conversations(), "asides": asides()}
    async with _recorder(tokenizer) as recorder:
        for side, (name, talks) in product(sides, written.items()):
            random = Random(f"{seed} {side} {number} {name}")
            found = [talk for talk in talks if talk.side == side]
            chat = small_talk(held_out=side != "train")
            books, times = shelves(side) if name == "people" else [], 1
            if side == "train":
                name, times = f"train-{name}-{number}", each
                found, books = found[number - 1 :: parts], books[number - 1 :: parts]
            played = [
                replace(user, auto_recall=random.random() < auto_recall and bool(user.past))
                for user in users(found, books, chat, random, each=times)
            ]
            path = folder / f"{name}.jsonl.gz"
            count = await recorder.record_all(path, played, seed=seed)
            typer.echo(f"{path}: {count} chains of {len(played)} conversations")


async def _record(folder: Path, tokenizer: Path, counts: dict[str, int], seed: int) -> None:
    sides: dict[str, Holdout] = {"train": TRAINING, **HELD_OUT}
    async with _recorder(tokenizer) as recorder:
        for name, count in counts.items():
            talk = small_talk(held_out=name != "train")
            path = folder / f"{name}.jsonl.gz"
            written = await recorder.record_made_up(path, sides[name], talk, count=count, seed=seed)
            typer.echo(f"{path}: {written} chains of {count} conversations")


@asynccontextmanager
async def _recorder(tokenizer: Path) -> AsyncIterator[Recorder]:
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(
            home=Path(home),
            prompts_dir=shipped_prompts() / "small_model",
            llm_thought_last=True,
            llm_longest_text=200,
            history="compact",
            summary_method="extract",
            index_after_seconds=0,
            jobs_at_once=0,
        )
        teachers = Teachers(Remembered(TokenizerFile(tokenizer)))
        clock = SimulatedClock()
        embedder = BatchingEmbedder(make_embedder(settings))
        with database_urls(settings) as urls:
            async with assemble(urls.app, teachers, embedder, settings, clock=clock) as services:
                yield Recorder(services, teachers, clock)
        await embedder.aclose()


def main() -> None:
    """Run a command; what is wrong is said in a line."""
    try:
        app()
    except MemserverError as error:
        typer.echo(f"{error.message} {error.hint or ''}".strip(), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
