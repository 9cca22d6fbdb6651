"""The stages that play tasks, or draw messages: from adapters to trajectories and candidates."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.colbench.backend.rules import MARKER
from memserver_evals.colbench.backend.scripted import NOISY, ScriptedAgent
from memserver_evals.colbench.backend.task import AGENT_PROMPT
from memserver_evals.task import System
from sweet_rl import candidates as drawing
from sweet_rl import rollouts as playing
from sweet_rl.candidates import Draws, draw_candidates
from sweet_rl.policy import Policy
from sweet_rl.published import read_published, write_published
from sweet_rl.recipe import Recipe
from sweet_rl.rollouts import Player, roll_out
from sweet_rl.runs.bench import (
    CANDIDATES,
    GREEDY_PLAYS,
    SAMPLED_PLAYS,
    TRAJECTORIES,
    Bench,
    collected_by,
)
from sweet_rl.runs.stages import Unit
from sweet_rl.sampling.samplers import GREEDY, Sampler, Sampling, seed_of
from sweet_rl.task_sets import TaskSet, environment, make_tasks
from sweet_rl.trajectories import Candidates, Trajectory, read_file, write_file


@dataclass(frozen=True, slots=True)
class Plays:
    path: Path
    samples: int
    sampling: Sampling


def collect(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe, tasks, path = bench.recipe.collect, bench.tasks("train"), folder / TRAJECTORIES
    if recipe.file is not None:
        assert bench.around.data is not None, "published tasks could not have been read"
        told = bench.around.prompts.render(AGENT_PROMPT, marker=MARKER, turns=tasks.max_turns)
        write_file(path, read_published(bench.around.data / recipe.file, told))
    elif recipe.by == "scripted":
        asyncio.run(scripted(unit, bench, tasks, path, recipe.samples))
    else:
        plays = [Plays(path, recipe.samples, bench.sampling)]
        asyncio.run(sampled(unit, bench, tasks, plays))
    return playing.figures_of(read_file(path, Trajectory))


def candidates(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe = bench.recipe
    collected = collected_by(unit, bench)
    chosen = collected[: math.ceil(recipe.candidates.share * len(collected))]

    async def draw() -> list[Candidates]:
        with bench.shows(unit.path) as progress:
            async with bench.source.open(bench.adapter(unit.needs.get("begin"))) as sampler:
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
    recipe = bench.recipe
    tasks = bench.tasks("validation" if unit.stage == "validate" else "test")
    single = unit.part == "single"
    plays = [Plays(folder / SAMPLED_PLAYS, recipe.evaluate.samples, bench.sampling)]
    if recipe.evaluate.greedy:
        greedy = Sampling(GREEDY.temperature, bench.sampling.max_tokens)
        plays.append(Plays(folder / GREEDY_PLAYS, 1, greedy))
    asyncio.run(sampled(unit, bench, tasks, plays, single=single))
    return {each.path.stem: playing.figures_of(read_file(each.path, Trajectory)) for each in plays}


def export(recipe: Recipe, out: Path, data: Path | None) -> Path:
    """Write what was collected in the form in which ColBench's trajectories are published."""
    collected = sorted(out.glob(f"*/collect/{TRAJECTORIES}"))
    if not collected:
        raise InvalidInput(f"{out} has nothing collected yet.")
    examples = {each.id: each for each in make_tasks(recipe, "train", data).examples}
    path = out / "published.jsonl"
    played = [each for file in collected for each in read_file(file, Trajectory)]
    write_published(path, played, examples)
    return path


async def sampled(
    unit: Unit, bench: Bench, tasks: TaskSet, plays: Sequence[Plays], *, single: bool = False
) -> None:
    """Play tasks with the policy that the unit starts from; a file that is there stays as it is."""
    missing = [each for each in plays if not each.path.exists()]
    if not missing:
        return
    adapter = bench.adapter(unit.needs.get("policy") or unit.needs.get("begin"))
    async with (
        bench.source.open(adapter) as sampler,
        environment(tasks, bench.around, single=single) as task,
    ):
        for each in missing:
            with bench.shows(f"{unit.path} {each.path.stem}") as progress:
                player = _policies(unit, sampler, each.sampling)
                how = bench.rollouts(each.samples, progress)
                await roll_out(task, tasks.examples, player, each.path, how)


async def scripted(unit: Unit, bench: Bench, tasks: TaskSet, path: Path, samples: int) -> None:
    recipe = bench.recipe.warm_start
    habits = NOISY if recipe is None else recipe.habits

    def player(sample: int) -> System:
        return ScriptedAgent(tasks.slots, habits, seed=seed_of(unit.path, sample))

    with bench.shows(f"{unit.path} {path.stem}") as progress:
        async with environment(tasks, bench.around) as task:
            await roll_out(task, tasks.examples, player, path, bench.rollouts(samples, progress))


def _policies(unit: Unit, sampler: Sampler, sampling: Sampling) -> Player:
    """Plays with another chance each time. Policies that are evaluated have the same chance."""
    owner = (unit.stage, unit.seed)

    def player(sample: int) -> System:
        return Policy(unit.path, sampler, sampling, seed_of(*owner, sample))

    return player
