"""What stages work with: the recipe, the run's folder, a source of samplers, a deadline; and the files they make."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from memserver.messages import JsonObject
from sweet_rl.progress import Progress
from sweet_rl.recipe import Recipe
from sweet_rl.resumable import Deadline, OutOfTime
from sweet_rl.runs.units import ADAPTER, Unit
from sweet_rl.sampling.samplers import Sampler, Sampling
from sweet_rl.sampling.sources import SamplingSource, TransformersSource
from sweet_rl.task_sets import Environment, Split, TaskSet, make_tasks
from sweet_rl.trajectories import Trajectory, read_file

TRAJECTORIES, CANDIDATES, RANKED = "trajectories.jsonl", "candidates.jsonl", "ranked.jsonl"
EVALUATIONS = {"sampled": "sampled.jsonl", "greedy": "greedy.jsonl"}
Shows = Callable[[str], AbstractContextManager[Progress]]
"""Shows how far something is, under a title, while a block runs."""


@dataclass(frozen=True)
class RunContext:
    recipe: Recipe
    out: Path  # the run's folder, an absolute path
    base: Path  # the base model's folder
    source: SamplingSource
    environment: Environment  # of the tasks
    deadline: Deadline  # of this call
    shows: Shows
    gpus: int = 1  # that train together
    _tasks: dict[Split, TaskSet] = field(default_factory=dict, repr=False)

    def tasks(self, split: Split) -> TaskSet:
        if split not in self._tasks:
            self._tasks[split] = make_tasks(self.recipe, split, self.environment.data)
        return self._tasks[split]

    def adapter(self, unit: Unit | None) -> Path | None:
        return None if unit is None else unit.folder(self.out) / ADAPTER

    def policy_of(self, unit: Unit) -> Path | None:
        """The adapter of the policy that a unit plays; None: the base itself."""
        if (kept := self.recipe.kept.get(unit.policy)) is not None:
            return kept.resolve()
        return self.adapter(unit.needs.get("policy") or unit.needs.get("begin"))

    def sampler(self, policy: Path | None) -> AbstractAsyncContextManager[Sampler]:
        """Of a policy. Where all its weights were trained, servers that take adapters can't have it: it is loaded here."""
        whole = policy is not None and (policy / "config.json").is_file()
        return (TransformersSource(self.base) if whole else self.source).open(policy)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.recipe.sampling.temperature, self.recipe.sampling.max_tokens)


def collected_by(unit: Unit, context: RunContext) -> list[Trajectory]:
    return read_file(unit.needs["data"].folder(context.out) / TRAJECTORIES, Trajectory)


def check_finished(figures: JsonObject, unit: Unit) -> None:
    if not figures.get("finished", True):
        raise OutOfTime(
            f"The time is over: {unit.path} is not done.",
            hint="What is done is kept; the same command resumes.",
        )
