"""The stage that plays policies over temperatures and spare turns, on validation and on test tasks."""

from dataclasses import replace
from pathlib import Path

from memserver.messages import JsonObject
from sweet_rl.recipe import Recipe
from sweet_rl.rollouts import figures_of
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.play_stages import Plays, play
from sweet_rl.runs.units import Unit
from sweet_rl.sampling.samplers import Sampling
from sweet_rl.task_sets import Split, TaskSet, make_tasks
from sweet_rl.trajectories import Trajectory, read_file

SPLITS: tuple[Split, ...] = ("validation", "test")


def play_grid(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """A round of a policy. The same tasks are played with the same chance by all policies, and at all temperatures."""
    grid, number = context.recipe.grid, int(unit.part.rpartition(".")[2])
    assert grid is not None
    files = []
    for split in SPLITS:
        for spare in grid.spare_turns:
            plays = [
                Plays(
                    folder / file_of(split, spare, temperature),
                    1,
                    Sampling(temperature, context.sampling.max_tokens),
                )
                for temperature in grid.temperatures
            ]
            play(unit, context, _tasks(context.recipe, split, spare, number), plays)
            files += [each.path for each in plays]
    return figures_of([each for path in files for each in read_file(path, Trajectory)])


def file_of(split: Split, spare_turns: int, temperature: float) -> str:
    return f"{split}-spare-{spare_turns}-at-{temperature:g}.jsonl"


def _tasks(recipe: Recipe, split: Split, spare_turns: int, number: int) -> TaskSet:
    """Those of one round, from 1."""
    assert recipe.grid is not None
    end = number * recipe.grid.tasks
    changes = {"spare_turns": spare_turns, split: end}
    changed = recipe.model_copy(update={"tasks": recipe.tasks.model_copy(update=changes)})
    made = make_tasks(changed, split)
    return replace(made, examples=made.examples[end - recipe.grid.tasks :])
