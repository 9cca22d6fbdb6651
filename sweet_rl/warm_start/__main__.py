"""The steps of a warm start: `python -m sweet_rl.warm_start --help`."""

import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from memserver.embeddings.batching import BatchingEmbedder
from memserver.llm.tokens import Remembered, TokenizerFile
from memserver.openai_http.client import Endpoint
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.wiring.database import database_urls
from memserver.wiring.providers import make_embedder
from memserver.wiring.services import assemble
from sweet_rl.warm_start.intents import HELD_OUT, TRAINING, Holdout
from sweet_rl.warm_start.report import draw, table
from sweet_rl.warm_start.small_talk import (
    PLAIN,
    SHORT,
    ask,
    load_replies,
    on_topic,
    settle,
)
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

    Goes on where it broke off; what was asked before is not asked again.
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
    users: Annotated[int, typer.Option(help="Conversations for training.")] = 1200,
    tests: Annotated[int, typer.Option(help="Conversations for each of the three tests.")] = 60,
    seed: int = 1,
) -> None:
    """Play synthetic users on a server of its own, and write down what the teacher does."""
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the database ends with us
    asyncio.run(_record(folder, tokenizer, {"train": users} | dict.fromkeys(HELD_OUT, tests), seed))


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


async def _record(folder: Path, tokenizer: Path, counts: dict[str, int], seed: int) -> None:
    sides: dict[str, Holdout] = {"train": TRAINING, **HELD_OUT}
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(
            home=Path(home),
            prompts_dir=shipped_prompts() / "small_model",
            llm_thought_last=True,
            llm_longest_text=200,
            jobs_at_once=0,
        )
        teachers = Teachers(Remembered(TokenizerFile(tokenizer)))
        clock = SimulatedClock()
        embedder = BatchingEmbedder(make_embedder(settings))
        with database_urls(settings) as urls:
            async with assemble(urls.app, teachers, embedder, settings, clock=clock) as services:
                recorder = Recorder(services, teachers, clock)
                for name, count in counts.items():
                    talk = [each for each in load_replies() if each.held_out == (name != "train")]
                    path = folder / f"{name}.jsonl.gz"
                    written = await recorder.record_made_up(
                        path, sides[name], talk, count=count, seed=seed
                    )
                    typer.echo(f"{path}: {written} chains of {count} conversations")
        await embedder.aclose()


if __name__ == "__main__":
    app()
