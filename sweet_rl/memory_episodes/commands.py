"""SWEET-RL on memory episodes, step by step: `python -m sweet_rl.memory_episodes --help`.

Each command works in the folder of a run. What was done is kept; a command that was killed, or that came to the end of
its --seconds (exit status 3), resumes where it was.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sweet_rl.memory_episodes import data
from sweet_rl.memory_episodes.forking import CallDraws
from sweet_rl.memory_episodes.layout import ARMS, CRITIC_OF, Arm, Run
from sweet_rl.memory_episodes.records import Drawn, Task
from sweet_rl.memory_episodes.report import MANNERS, written
from sweet_rl.memory_episodes.steps import Part, Playing, faults, play_all, some
from sweet_rl.memory_episodes.tasks import tasks_of
from sweet_rl.memory_episodes.wiring import Endpoint, stage_of
from sweet_rl.resumable import Deadline
from sweet_rl.trajectories import Record, write_file
from sweet_rl.warm_start.corpus import conversations

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
Folder = Annotated[Path, typer.Argument(help="Of the run.")]
TokenizerPath = Annotated[Path, typer.Option("--tokenizer", help="The model's folder.")]
Url = Annotated[str, typer.Option("--endpoint", help="OpenAI-compatible, …/v1.")]
Model = Annotated[str, typer.Option("--model", help="The policy's name at the endpoint.")]
Temperature = Annotated[float, typer.Option(help="Of the policy.")]
Parts = Annotated[str, typer.Option("--part", help="2/4: this process plays the second quarter.")]
Seconds = Annotated[float | None, typer.Option(help="That this call may take.")]
Seed = Annotated[int, typer.Option(help="1 to 5 are the seeds that are compared.")]
Base = Annotated[Path, typer.Option(help="The folder of the base model.")]
Reference = Annotated[
    Path | None, typer.Option(help="The adapter to start from, and the reference.")
]
AtOnce = Annotated[int, typer.Option(help="Episodes at a time in this process.")]


@app.command()
def tasks(
    folder: Folder,
    each: Annotated[int, typer.Option(help="Tasks of each test conversation; of others one.")] = 2,
    seed: int = 1,
    check: Annotated[
        Path | None, typer.Option(help="A tokenizer: play each task by a script that saves.")
    ] = None,
) -> None:
    """Make the tasks of all sides, by topic as the corpus is split."""
    talks = conversations()
    made = [
        task
        for talk in talks
        for task in tasks_of([talk], each=each if talk.side == "test" else 1, seed=seed)
    ]
    run = Run(folder)
    write_file(run.tasks_file, made)
    for side in ("train", "validation", "test"):
        own = [task for task in made if task.side == side]
        topics = {task.topic for task in own}
        typer.echo(f"{side}: {len(own)} tasks of {len(topics)} topics")
    if check is not None:
        drawn = _play(check, None, made, folder / "check", "check", Playing(at_once=8))
        by_id = {each.episode.task: each for each in drawn}
        found = [(task.id, faults(task, by_id[task.id])) for task in made]
        for name, wrong in found:
            if wrong:
                typer.echo(f"{name}: {', '.join(wrong)}")
        typer.echo(
            f"{sum(not wrong for _, wrong in found)} of {len(found)} tasks are as they should be"
        )


@app.command()
def play(
    folder: Folder,
    tokenizer: TokenizerPath,
    endpoint: Url,
    model: Model,
    samples: Annotated[int, typer.Option(help="Times that each task is played.")] = 6,
    side: str = "train",
    temperature: Temperature = 1.0,
    part: Parts = "1/1",
    seconds: Seconds = None,
    at_once: AtOnce = 24,
) -> None:
    """Play the tasks of a side with the policy that all arms start from: what they learn from."""
    run = Run(folder)
    how = Playing(samples, 0, at_once, Part.read(part), Deadline.after(seconds))
    policy = Endpoint(endpoint, model, temperature)
    own = [task for task in run.tasks() if task.side == side]
    _play(tokenizer, policy, own, folder / "plays", side, how)


@app.command()
def candidates(
    folder: Folder,
    tokenizer: TokenizerPath,
    endpoint: Url,
    model: Model,
    seed: Seed = 1,
    count: Annotated[int, typer.Option(help="Calls for each state.")] = 8,
    share: Annotated[float, typer.Option(help="Of the user's messages.")] = 0.3,
    number: Annotated[int, typer.Option("--tasks", help="Training tasks, drawn by the seed.")] = 40,
    temperature: Temperature = 1.0,
    part: Parts = "1/1",
    seconds: Seconds = None,
    at_once: AtOnce = 12,
) -> None:
    """Play training tasks, and draw further calls in some of their states: what actors learn from."""
    run = Run(folder)
    draws = CallDraws(count=count, share=share, seed=seed)
    how = Playing(1, 1000 * seed, at_once, Part.read(part), Deadline.after(seconds), draws)
    policy = Endpoint(endpoint, model, temperature)
    own = some([task for task in run.tasks() if task.side == "train"], number, seed)
    _play(tokenizer, policy, own, folder / "candidates", f"seed-{seed}", how)


@app.command()
def oracle(
    folder: Folder,
    tokenizer: TokenizerPath,
    endpoint: Annotated[str | None, typer.Option(help="Execute calls with this policy.")] = None,
    model: Model = "",
    base: Annotated[Path | None, typer.Option(help="Compare critics on this base.")] = None,
    reference: Reference = None,
    seed: Seed = 1,
    count: Annotated[int, typer.Option(help="Calls for each state.")] = 8,
    continuations: Annotated[int, typer.Option(help="Times that each is played to the end.")] = 2,
    number: Annotated[int, typer.Option("--tasks", help="Validation tasks.")] = 18,
    share: Annotated[float, typer.Option(help="Of the user's messages.")] = 0.15,
    part: Parts = "1/1",
    seconds: Seconds = None,
    at_once: AtOnce = 2,
) -> None:
    """Execute drawn calls on copies of the agent, and say how well critics agree with what came of it.

    The check before any actor is trained: does the hidden information raise the critic's agreement within states by
    .05 or more?
    """
    run = Run(folder)
    if endpoint is not None:
        draws = CallDraws(count=count, share=share, execute=True, continuations=continuations)
        how = Playing(1, 0, at_once, Part.read(part), Deadline.after(seconds), draws)
        own = some([task for task in run.tasks() if task.side == "validation"], number, 0)
        policy = Endpoint(endpoint, model, 1.0)
        _play(tokenizer, policy, own, folder / "oracle", "oracle", how)
    if base is not None:
        from sweet_rl.memory_episodes.ranking import Scorer, agreements

        found = json.dumps(agreements(run, Scorer(base, reference), seed), indent=1)
        (run.folder / f"agreement-{seed}.json").write_text(found, "utf-8")
        typer.echo(found)


@app.command()
def pairs(
    folder: Folder,
    arm: str,
    seed: Seed = 1,
    own: Annotated[int, typer.Option(help="Plays of each task that are this seed's.")] = 4,
    margin: Annotated[float, typer.Option(help="Between the rewards of two plays.")] = 0.4,
    least: Annotated[float, typer.Option(help="Reward of a play that is imitated.")] = 0.6,
    each: Annotated[int, typer.Option(help="Pairs of each state.")] = 4,
    informative: Annotated[float, typer.Option(help="Share of pairs of calls that is kept.")] = 0.5,
    base: Annotated[Path | None, typer.Option(help="For actors: of their critic.")] = None,
    reference: Reference = None,
) -> None:
    """Write down what an arm learns from: rft, mdpo, critic, critic-blind, sweet or sweet-blind."""
    run, chosen = Run(folder), _arm(arm)
    found: Sequence[Record]
    if chosen in CRITIC_OF:
        from sweet_rl.memory_episodes.ranking import Scorer, rank_candidates

        if base is None:
            raise typer.BadParameter(
                "An actor's pairs need --base, which the critic is an adapter of."
            )
        ranked = rank_candidates(run, Scorer(base, reference), chosen, seed)
        found = data.call_pairs(ranked, count=each, informative=informative, seed=seed)
    elif chosen == "rft":
        drawn = run.plays()
        spent = data.tokens_of(run.candidates(seed))
        plays = data.matched(data.own_plays(drawn, own, seed), drawn, spent, seed)
        found = data.kept(plays, least)
    else:
        found = data.play_pairs(data.own_plays(run.plays(), own, seed), margin)
    file = run.data(chosen, seed)
    typer.echo(f"{file}: {write_file(file, found)}")


@app.command()
def train(
    folder: Folder,
    arm: str,
    base: Base,
    reference: Reference = None,
    seed: Seed = 1,
    seconds: Seconds = None,
    epochs: float | None = None,
    batch: int | None = None,
    rate: float | None = None,
    beta: float | None = None,
    nll: float | None = None,
) -> None:
    """Train an arm; it fits its steps into the time that is left."""
    from sweet_rl.memory_episodes import training

    chosen = _arm(arm)
    given = {"epochs": epochs, "batch": batch, "rate": rate, "beta": beta, "nll": nll}
    recipe = training.changed(training.RECIPES[chosen], given)
    start = training.Start(base, reference, seed, seconds)
    figures = training.train(Run(folder), chosen, start, recipe)
    typer.echo(json.dumps({name: value for name, value in figures.items() if name != "losses"}))


@app.command()
def evaluate(
    folder: Folder,
    tokenizer: TokenizerPath,
    endpoint: Url,
    model: Model,
    policy: Annotated[str, typer.Option(help="How the report calls it: seed-1/sweet, or stage-2.")],
    side: str = "test",
    samples: Annotated[int, typer.Option(help="Drawn plays of each task; greedily it is one.")] = 1,
    part: Parts = "1/1",
    seconds: Seconds = None,
    at_once: AtOnce = 24,
) -> None:
    """Play the test tasks with a policy, greedily and at temperature 1."""
    run, deadline = Run(folder), Deadline.after(seconds)
    own = [task for task in run.tasks() if task.side == side]
    for manner, temperature in zip(MANNERS, (0.0, 1.0), strict=True):
        how = Playing(samples if temperature else 1, 0, at_once, Part.read(part), deadline)
        named = Endpoint(endpoint, model, temperature)
        _play(tokenizer, named, own, folder / side / policy / manner, "plays", how)


@app.command()
def report(folder: Folder) -> None:
    """Write the tables of a run: report.md in its folder."""
    text = written(Run(folder))
    (folder / "report.md").write_text(text, encoding="utf-8")
    typer.echo(text)


def _play(
    tokenizer: Path,
    policy: Endpoint | None,
    own: Sequence[Task],
    folder: Path,
    name: str,
    how: Playing,
) -> list[Drawn]:
    async def run() -> list[Drawn]:
        async with stage_of(tokenizer, policy) as stage:
            return await play_all(stage, own, folder, name, how)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the database ends with us
    drawn = asyncio.run(run())
    _say(drawn)
    return drawn


def _arm(name: str) -> Arm:
    found = next((arm for arm in ARMS if arm == name), None)
    if found is None:
        raise typer.BadParameter(f"{name} is none of {', '.join(ARMS)}.")
    return found


def _say(drawn: Sequence[Drawn]) -> None:
    episodes = [each.episode for each in drawn]
    states = [state for each in drawn for state in each.states]
    count = max(1, len(episodes))
    figures = {
        "episodes": len(episodes),
        "reward": round(sum(each.reward for each in episodes) / count, 4),
        "calls": sum(len(each.steps) for each in episodes),
        "tokens": sum(each.tokens for each in episodes),
        "evictions": round(sum(each.evictions for each in episodes) / count, 1),
        "states": len(states),
        "tokens of candidates": sum(state.tokens for state in states),
    }
    typer.echo(json.dumps(figures))
