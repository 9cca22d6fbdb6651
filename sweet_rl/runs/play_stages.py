"""The stages that play tasks, or draw messages: from adapters to trajectories and candidates.

Differs from the paper: where tasks are generated a program plays the human, and `scripted` collaborations come from an
agent that knows the tasks and errs. Policies that are evaluated draw with the same chance.
"""

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
from sweet_rl import rollouts
from sweet_rl.progress import Progress
from sweet_rl.recipe import Recipe
from sweet_rl.rollouts import Draws, Policy, Rollouts, draw_candidates, roll_out
from sweet_rl.runs.context import CANDIDATES, EVALUATIONS, TRAJECTORIES, RunContext, collected_by
from sweet_rl.runs.units import EVALUATED, Unit
from sweet_rl.sampling.samplers import GREEDY, Sampling, seed_of
from sweet_rl.task_sets import TaskSet, make_tasks, open_task
from sweet_rl.trajectories import (
    Candidates,
    Trajectory,
    read_file,
    read_published,
    write_file,
    write_published,
)


@dataclass(frozen=True, slots=True)
class Plays:
    path: Path
    samples: int  # of each task
    sampling: Sampling


def collect(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    recipe, tasks, path = context.recipe.collect, context.tasks("train"), folder / TRAJECTORIES
    if recipe.file is not None:
        around = context.environment
        assert around.data is not None, "published tasks could not have been read"
        rules = around.prompts.render(AGENT_PROMPT, marker=MARKER, turns=tasks.max_turns)
        write_file(path, read_published(around.data / recipe.file, rules))
    elif recipe.by == "scripted":
        play_by_script(unit, context, tasks, path, recipe.samples)
    else:
        play(unit, context, tasks, [Plays(path, recipe.samples, context.sampling)])
    return rollouts.figures_of(read_file(path, Trajectory))


def candidates(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """Several next messages for each turn of the first trajectories."""
    recipe, collected = context.recipe, collected_by(unit, context)
    chosen = collected[: math.ceil(recipe.candidates.share * len(collected))]

    async def draw() -> list[Candidates]:
        with context.shows(unit.path) as progress:
            async with context.sampler(context.policy_of(unit)) as sampler:
                how = Draws(
                    recipe.candidates.count,
                    context.sampling,
                    seed_of(unit.path),
                    max(1, recipe.sampling.at_once * 2 // recipe.candidates.count),
                    context.deadline,
                    progress,
                )
                return await draw_candidates(chosen, sampler, folder / CANDIDATES, how)

    return rollouts.figures_of_candidates(asyncio.run(draw()))


def evaluate(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """A policy on the tasks of a split: as training plays, and greedily."""
    recipe = context.recipe.evaluate
    ways = {"sampled": Plays(folder / EVALUATIONS["sampled"], recipe.samples, context.sampling)}
    if recipe.greedy:
        greedy = Sampling(GREEDY.temperature, context.sampling.max_tokens)
        ways["greedy"] = Plays(folder / EVALUATIONS["greedy"], 1, greedy)
    tasks = context.tasks(EVALUATED[unit.stage])
    play(unit, context, tasks, list(ways.values()), single=unit.part == "single")
    return {
        mode: rollouts.figures_of(read_file(each.path, Trajectory)) for mode, each in ways.items()
    }


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


def play(
    unit: Unit, context: RunContext, tasks: TaskSet, plays: Sequence[Plays], *, single: bool = False
) -> None:
    """Play tasks with the policy that the unit starts from; a file that is there stays as it is."""
    missing = [each for each in plays if not each.path.exists()]

    async def play_missing() -> None:
        async with (
            context.sampler(context.policy_of(unit)) as sampler,
            open_task(tasks, context.environment, single=single) as task,
        ):
            for each in missing:
                sampling = each.sampling

                def player(sample: int, sampling: Sampling = sampling) -> System:
                    seed = seed_of(unit.stage, unit.seed, sample)
                    return Policy(unit.path, sampler, sampling, seed)

                with context.shows(f"{unit.path} {each.path.stem}") as progress:
                    how = _rollouts(context, each.samples, progress)
                    await roll_out(task, tasks.examples, player, each.path, how)

    if missing:
        asyncio.run(play_missing())


def play_by_script(
    unit: Unit, context: RunContext, tasks: TaskSet, path: Path, samples: int
) -> None:
    """Play tasks with the agent that knows their families, and errs; a file that is there stays as it is."""
    if path.exists():
        return
    recipe = context.recipe.warm_start
    habits = NOISY if recipe is None else recipe.habits

    def player(sample: int) -> System:
        return ScriptedAgent(tasks.slots, habits, seed=seed_of(unit.path, sample))

    async def play_all() -> None:
        with context.shows(f"{unit.path} {path.stem}") as progress:
            async with open_task(tasks, context.environment) as task:
                how = _rollouts(context, samples, progress)
                await roll_out(task, tasks.examples, player, path, how)

    asyncio.run(play_all())


def _rollouts(context: RunContext, samples: int, progress: Progress) -> Rollouts:
    return Rollouts(samples, context.recipe.sampling.at_once, context.deadline, progress)
