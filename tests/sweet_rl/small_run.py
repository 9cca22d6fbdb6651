"""A run of a small recipe, whose words are scripted and whose trainings are stood in for."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.colbench.kinds import Kind
from memserver_evals.colbench.sandbox.encoding import encode
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.colbench.sandbox.values import CallOutcome, read_outcome
from sweet_rl.launching import Plan
from sweet_rl.progress import Progress
from sweet_rl.recipe import Recipe, load_recipe
from sweet_rl.resumable import Deadline
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.run import Selection, run_units
from sweet_rl.runs.units import units_of
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
grid: {temperatures: [0, 1], spare_turns: [1, 3], tasks: 2, rounds: 2}
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


@dataclass
class Trainings:
    """Stands in for trainings: they leave an empty adapter, or run out of time."""

    plans: list[Plan]
    out_of_time: bool = False

    def train(self, plan: Plan, gpus: int, progress: Progress) -> JsonObject:
        self.plans.append(plan)
        progress(1, 1)
        (plan.out / "checkpoints").mkdir(exist_ok=True)
        if self.out_of_time:
            return {"finished": False}
        (plan.out / "adapter").mkdir(exist_ok=True)
        metrics = [{"step": step, "loss": 1 / step} for step in (1, 2)]
        (plan.out / "metrics.jsonl").write_text("\n".join(map(json.dumps, metrics)))
        return {"finished": True, "steps": 2, "loss": 0.5, "held_out_accuracy": 0.75}


class Trusting(Sandbox):
    """Runs code here, where all of it is ours: starting a sandbox for each unit takes longer than its work."""

    async def run(
        self, source: str, calls: Sequence[str], *, kind: Kind = "answer"
    ) -> tuple[CallOutcome, ...]:
        names: dict[str, Any] = {}
        try:
            exec(source, names)
            values = (encode(eval(call, names)) for call in calls)
            return tuple(read_outcome(f'["value", {value}]') for value in values)
        except (NameError, SyntaxError) as error:
            return (CallOutcome(error=repr(error)),) * len(calls)


def run(
    tools: RunContext, wanted: Selection | None = None, *, redo: bool = False
) -> tuple[list[str], dict[str, JsonObject]]:
    told: dict[str, JsonObject] = {}
    done = run_units(
        units_of(tools.recipe),
        wanted or Selection(),
        tools,
        lambda unit, figures, _: told.update({unit.path: figures}),
        redo=redo,
    )
    return [unit.path for unit in done], told
