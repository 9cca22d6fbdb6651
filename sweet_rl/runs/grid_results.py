"""Each policy at its own best temperature, which its success on validation tasks decides; test tasks are what is compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from memserver_evals.scoring.statistics import Estimate
from sweet_rl.recipe import Recipe
from sweet_rl.runs.comparing import Paired, Plays, compared, estimated, mean_of
from sweet_rl.runs.grid import file_of
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.units import Unit, units_of
from sweet_rl.task_sets import Split
from sweet_rl.trajectories import Trajectory, read_file


@dataclass(frozen=True)
class Point:
    temperature: float
    validation: float  # success
    test: Estimate  # of the success, by a bootstrap over seeds and families
    by_seed: Estimate  # the same with its t-interval over seeds


@dataclass(frozen=True)
class AtBest:
    policy: str
    seeds: int
    spare_turns: int
    best: Point


@dataclass(frozen=True)
class GridResults:
    tasks: int  # of each split, that each policy has played
    rows: Sequence[AtBest]
    differences: Mapping[int, Sequence[Paired]]  # by spare turns; in success, each at its best
    curves: Mapping[int, Mapping[str, Sequence[Point]]]  # by spare turns and policy


def gather_grid(recipe: Recipe, out: Path) -> GridResults | None:
    """What is done of it: the rounds that all policies have played which have played any."""
    grid, units = recipe.grid, _whole_rounds(recipe, out)
    if grid is None or not units:
        return None
    rows, differences = list[AtBest](), dict[int, Sequence[Paired]]()
    curves: dict[int, dict[str, list[Point]]] = {}
    for spare in grid.spare_turns:
        at_best: dict[str, Plays] = {}
        curves[spare] = {}
        for policy in dict.fromkeys(unit.policy for unit in units):
            own = [unit for unit in units if unit.policy == policy]
            tests = {
                temperature: _plays(own, out, "test", spare, temperature)
                for temperature in grid.temperatures
            }
            points = [
                Point(
                    temperature,
                    _success(_plays(own, out, "validation", spare, temperature)),
                    *estimated(plays, "success", f"grid {spare} {temperature} {policy}"),
                )
                for temperature, plays in tests.items()
            ]
            best = max(points, key=lambda one: (one.validation, -one.temperature))
            at_best[policy], curves[spare][policy] = tests[best.temperature], points
            rows.append(AtBest(policy, len(at_best[policy]), spare, best))
        differences[spare] = compared(recipe, at_best, ("success",), f"grid {spare}")
    return GridResults(
        grid.tasks * len({_round(unit) for unit in units}), rows, differences, curves
    )


def _whole_rounds(recipe: Recipe, out: Path) -> list[Unit]:
    state = RunState(out)
    done = [
        unit
        for unit in units_of(recipe)
        if unit.stage == "grid" and state.figures(unit) is not None
    ]
    rounds: dict[tuple[str, int | None], set[int]] = {}
    for unit in done:
        rounds.setdefault((unit.policy, unit.seed), set()).add(_round(unit))
    common = set.intersection(*rounds.values()) if rounds else set()
    return [unit for unit in done if _round(unit) in common]


def _round(unit: Unit) -> int:
    return int(unit.part.rpartition(".")[2])


def _plays(
    units: Sequence[Unit], out: Path, split: Split, spare_turns: int, temperature: float
) -> Plays:
    found: dict[int, dict[str, list[Trajectory]]] = {}
    for unit in units:
        path = unit.folder(out) / file_of(split, spare_turns, temperature)
        for played in read_file(path, Trajectory):
            found.setdefault(unit.seed or 0, {}).setdefault(played.task, []).append(played)
    return dict(found)


def _success(plays: Plays) -> float:
    return fmean(mean_of(each, "success") for tasks in plays.values() for each in tasks.values())
