"""A run of a small recipe, whose words are scripted."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memserver_evals.colbench.backend.generator import generate
from sweet_rl.progress import Progress
from sweet_rl.recipe import Recipe, load_recipe
from sweet_rl.resumable import Deadline
from sweet_rl.runs.context import RunContext
from sweet_rl.task_sets import Environment
from sweet_rl.trajectories import Messages
from tests.sweet_rl.scripted_sampler import ScriptedSource

RECIPE = """
name: small
base: tiny
seeds: [1, 2]
tasks: {train: 8, validation: 1, test: 3, spare_turns: 3}
sampling: {at_once: 4}
warm_start: {tasks: 4, samples: 1, early: 0.2, idle: 0.1, miscopy: 0, epochs: 1}
collect: {samples: 3, by: scripted}
candidates: {share: 0.2, count: 4}
rank: {by: oracle}
rft_matched: {}
variants: {wide: {seeds: [1], actor: {pairs: 2}}, bold: {seeds: [2], mdpo: {beta: 1}}}
"""
ORACLES = {
    task.example.description: task
    for split in ("train", "validation", "test")
    for task in generate(split, 12, spare_turns=3)  # type: ignore[arg-type]
}


def words(messages: Messages, seed: int) -> str:
    """Answers at once; right with some seeds."""
    task = ORACLES[messages[1]["content"]]
    if seed % 3 == 0:
        return "What is the " + task.family.slots[seed % len(task.family.slots)].name + "?"
    code = task.example.reference
    return f"I WANT TO ANSWER:\n{code if seed % 2 else re.sub(r'[0-9]', '1', code)}"


@contextmanager
def unseen_progress(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


def small(tmp_path: Path, **changes: str) -> Recipe:
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return load_recipe(path, changes)


def bench(tmp_path: Path, recipe: Recipe) -> RunContext:
    return RunContext(
        recipe,
        tmp_path / "run",
        tmp_path / "base",
        ScriptedSource(words),
        Environment(),
        Deadline(),
        unseen_progress,
    )
