"""Policies' plays side by side: their scores, and how two policies differ, with intervals over seeds and tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from memserver_evals.scoring.statistics import Estimate
from sweet_rl.intervals import estimate_nested, t_interval
from sweet_rl.recipe import MAIN, Recipe
from sweet_rl.trajectories import Trajectory

SCORES: dict[str, Callable[[Trajectory], float]] = {
    "success": lambda play: float(play.reward == 1),
    "success_by_operator": lambda play: float(all(play.passed_by_operator or (False,))),
    "tests_passed": lambda play: play.reward,
    "turns": lambda play: float(play.turns),
    "answer_characters": lambda play: float(len(play.answer)),
}
COMPARED = (
    ("mdpo", MAIN),
    ("rft", MAIN),
    ("rft-matched", MAIN),
    ("rft", "mdpo"),
    ("warm-start", MAIN),
)
"""A and B of the differences B - A."""

Plays = Mapping[int, Mapping[str, Sequence[Trajectory]]]
"""A policy's plays by seed (0 for what seeds share) and task."""


@dataclass(frozen=True)
class Paired:
    """How B differs from A in one score, on the same tasks and seeds."""

    a: str
    b: str
    score: str
    estimate: Estimate
    by_seed: Estimate  # with a t-interval


def compared(
    recipe: Recipe, plays: Mapping[str, Plays], scores: Sequence[str], name: str
) -> list[Paired]:
    """The differences between methods, and of each variant to what it varies, as far as they were played."""
    variants = [(variant.of, each) for each, variant in recipe.variants.items()]
    return [
        difference(a, b, plays, score, name)
        for a, b in (*COMPARED, *variants)
        if a in plays and b in plays
        for score in scores
    ]


def difference(a: str, b: str, plays: Mapping[str, Plays], score: str, name: str) -> Paired:
    """B minus A, seed by seed and task by task; what all seeds share stands beside each seed."""
    of_a, of_b = plays[a], plays[b]
    found: dict[int, list[float]] = {}
    for seed in sorted(of_b):
        other = of_a.get(seed) or (of_a.get(0) if len(of_a) == 1 else None)
        if other is not None:
            found[seed] = [
                mean_of(of_b[seed][task], score) - mean_of(other[task], score)
                for task in sorted(of_b[seed])
            ]
    return Paired(a, b, score, *_intervals(found, of_b, f"{name} {a} {b}"))


def estimated(plays: Plays, score: str, name: str) -> tuple[Estimate, Estimate]:
    """A score's mean, with its bootstrap over seeds and families, and with its t-interval over seeds."""
    values = {
        seed: [mean_of(tasks[task], score) for task in sorted(tasks)]
        for seed, tasks in plays.items()
    }
    return _intervals(values, plays, f"{name} {score}")


def _intervals(
    values: Mapping[int, Sequence[float]], plays: Plays, name: str
) -> tuple[Estimate, Estimate]:
    some = next(iter(plays.values()))
    families = [some[task][0].kind or task for task in sorted(some)]
    by_seed = t_interval([fmean(each) for each in values.values()])
    return estimate_nested(values, families, name=name), by_seed


def mean_of(plays: Sequence[Trajectory], score: str) -> float:
    return fmean(map(SCORES[score], plays))
