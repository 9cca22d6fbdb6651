"""The stages that play tasks, or draw messages: from adapters to trajectories and candidates."""

import asyncio
import math
from pathlib import Path

from memserver.colbench.backend.rules import MARKER
from memserver.colbench.backend.scripted import NOISY, ScriptedAgent
from memserver.colbench.backend.task import AGENT_PROMPT
from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver.sweet_rl import candidates as drawing
from memserver.sweet_rl import rollouts as playing
from memserver.sweet_rl.bench import (
    CANDIDATES,
    GREEDY_PLAYS,
    SAMPLED_PLAYS,
    TRAJECTORIES,
    Bench,
    collected_by,
)
from memserver.sweet_rl.candidates import Draws, draw_candidates
from memserver.sweet_rl.policy import Policy
from memserver.sweet_rl.published import read_published, write_published
from memserver.sweet_rl.recipe import Recipe
from memserver.sweet_rl.rollouts import Player, roll_out
from memserver.sweet_rl.samplers import GREEDY, Sampler, Sampling, seed_of
from memserver.sweet_rl.stages import Unit
from memserver.sweet_rl.task_sets import TaskSet, environment, make_tasks
from memserver.sweet_rl.trajectories import (
    Candidates,
    Trajectory,
    read_file,
    write_file,
)
from memserver.tasks import System


def collect(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """The training tasks, played."""
    recipe, tasks, path = bench.recipe.collect, bench.tasks("train"), folder / TRAJECTORIES
    if recipe.file is not None:
        if bench.around.data is None:
            raise InvalidInput("The trajectories are in a file.", hint="Name its folder by --data.")
        told = bench.around.prompts.render(AGENT_PROMPT, marker=MARKER, turns=tasks.max_turns)
        played = read_published(bench.around.data / recipe.file, told)
        write_file(path, played)
    elif recipe.by == "scripted":
        player = scripted(tasks, bench, unit)
        played = asyncio.run(play(unit, bench, tasks, player, path, recipe.samples))
    else:
        played = asyncio.run(sampled(unit, bench, tasks, path, recipe.samples))
    return playing.figures_of(played)


def candidates(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """Several next messages for each turn of the first trajectories."""
    recipe = bench.recipe
    collected = collected_by(unit, bench)
    chosen = collected[: math.ceil(recipe.candidates.share * len(collected))]

    async def draw() -> list[Candidates]:
        with bench.shows(unit.path) as progress:
            async with bench.source.open(
                bench.adapter(unit.needs.get("begin")), logprobs=True
            ) as sampler:
                at_once = max(1, recipe.sampling.at_once * 2 // recipe.candidates.count)
                how = Draws(
                    recipe.candidates.count,
                    bench.sampling,
                    seed_of(unit.path),
                    at_once,
                    bench.deadline,
                    progress,
                )
                return await draw_candidates(chosen, sampler, folder / CANDIDATES, how)

    return drawing.figures_of(asyncio.run(draw()))


def evaluate(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """A policy on the tasks of a split: as training plays, and greedily."""
    recipe = bench.recipe
    tasks = bench.tasks("validation" if unit.stage == "validate" else "test")
    single = unit.part == "single"
    modes = {SAMPLED_PLAYS: (bench.sampling, recipe.evaluate.samples)}
    if recipe.evaluate.greedy:
        modes[GREEDY_PLAYS] = (Sampling(GREEDY.temperature, bench.sampling.max_tokens), 1)
    figures: JsonObject = {}
    for name, (sampling, samples) in modes.items():
        path = folder / name
        if not path.exists():
            asyncio.run(
                sampled(unit, bench, tasks, path, samples, sampling=sampling, single=single)
            )
        figures[path.stem] = playing.figures_of(read_file(path, Trajectory))
    return figures


def export(recipe: Recipe, out: Path, data: Path | None) -> Path:
    """Write what was collected in the form in which ColBench's trajectories are published.

    Raises:
        InvalidInput: nothing is collected yet.
    """
    collected = sorted(out.glob(f"*/collect/{TRAJECTORIES}"))
    if not collected:
        raise InvalidInput(f"{out} has nothing collected yet.")
    examples = {each.id: each for each in make_tasks(recipe, "train", data).examples}
    path = out / "published.jsonl"
    played = [each for file in collected for each in read_file(file, Trajectory)]
    write_published(path, played, examples)
    return path


async def sampled(  # noqa: PLR0913 - the last two have defaults and are named
    unit: Unit,
    bench: Bench,
    tasks: TaskSet,
    path: Path,
    samples: int,
    *,
    sampling: Sampling | None = None,
    single: bool = False,
) -> list[Trajectory]:
    """Played by the policy that the unit starts from."""
    adapter = bench.adapter(unit.needs.get("policy") or unit.needs.get("begin"))
    async with bench.source.open(adapter) as sampler:
        player = _policies(unit, sampler, sampling or bench.sampling)
        return await play(unit, bench, tasks, player, path, samples, single=single)


async def play(  # noqa: PLR0913 - the last one has a default and is named
    unit: Unit,
    bench: Bench,
    tasks: TaskSet,
    player: Player,
    path: Path,
    samples: int,
    *,
    single: bool = False,
) -> list[Trajectory]:
    """Tasks, played by a system so many times and written to a file."""
    with bench.shows(f"{unit.path} {path.stem}") as progress:
        async with environment(tasks, bench.around, single=single) as task:
            how = bench.rollouts(samples, progress)
            return await roll_out(task, tasks.examples, player, path, how)


def _policies(unit: Unit, sampler: Sampler, sampling: Sampling) -> Player:
    """Plays with another chance each time. Policies that are evaluated have the same chance."""
    owner = (unit.stage, unit.seed)

    def player(sample: int) -> System:
        return Policy(unit.path, sampler, sampling, seed_of(*owner, sample))

    return player


def scripted(tasks: TaskSet, bench: Bench, unit: Unit) -> Player:
    """The agent that knows the tasks' families, and errs."""
    recipe = bench.recipe.warm_start
    habits = NOISY if recipe is None else recipe.habits

    def player(sample: int) -> System:
        return ScriptedAgent(tasks.slots, habits, seed=seed_of(unit.path, sample))

    return player
