"""What came of a run: each policy's scores with their intervals, the paired differences, costs and curves."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.runs.run_folder import write_whole
from memserver_evals.scoring.statistics import Estimate
from sweet_rl.oracle import behaviour
from sweet_rl.recipe import Generated, Recipe
from sweet_rl.runs.comparing import SCORES, Paired, Plays, compared, estimated, mean_of
from sweet_rl.runs.context import EVALUATIONS
from sweet_rl.runs.grid_results import GridResults, gather_grid
from sweet_rl.runs.run_state import RunState, versions
from sweet_rl.runs.units import EVALUATED, Stage, policies_of, units_of
from sweet_rl.task_sets import Split, make_tasks
from sweet_rl.trajectories import Trajectory, read_file


@dataclass(frozen=True)
class ResultRow:
    policy: str
    seeds: int
    tasks: int
    scores: Mapping[str, Estimate]
    by_seed: Estimate  # the success, with its t-interval


@dataclass(frozen=True)
class Table:
    """All policies on one split in one mode."""

    split: str
    mode: str
    rows: Sequence[ResultRow]
    differences: Sequence[Paired]
    by_kind: Mapping[str, Mapping[str, float]]  # their success by family
    behaviour: Mapping[str, JsonObject]  # of each, in generated tasks; see `oracle.behaviour`


@dataclass(frozen=True)
class Results:
    """Of a run, as far as it is done. Units and trainings are named by their paths."""

    recipe: str  # its name
    tables: Sequence[Table]  # with something in them
    units: Mapping[str, JsonObject]  # figures and seconds of each unit that is done
    curves: Mapping[str, Sequence[tuple[float, ...]]]  # a training's losses by step
    # a preference training's steps with beta times the scores of the chosen and of the rejected over the reference's
    rewards: Mapping[str, Sequence[tuple[float, ...]]]
    missing: Sequence[str]  # units that aren't done
    grid: GridResults | None = None  # each policy at its own best temperature


def gather(recipe: Recipe, out: Path) -> Results:
    state, units = RunState(out), units_of(recipe)
    done: dict[str, JsonObject] = {
        unit.path: {"figures": figures, "seconds": state.seconds(unit)}
        for unit in units
        if (figures := state.figures(unit)) is not None
    }
    if not done:
        raise InvalidInput(f"{out} has nothing done yet.")
    splits = {split: stage for stage, split in reversed(EVALUATED.items())}
    tables = [
        _table(recipe, split, mode, plays)
        for split, stage in splits.items()
        for mode in EVALUATIONS
        if (plays := _plays(recipe, out, stage, mode))
    ]
    logs = {unit.path: _logged(unit.folder(out)) for unit in units}
    return Results(
        recipe.name,
        tables,
        done,
        _values(logs, "loss"),
        _values(logs, "rewards/chosen", "rewards/rejected"),
        [unit.path for unit in units if unit.path not in done],
        gather_grid(recipe, out),
    )


def write_results(results: Results, folder: Path) -> Path:
    """Write results.json, where nan is null; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = json.dumps(asdict(results) | {"versions": versions()})
    found = json.loads(whole, parse_constant=lambda _: None)
    write_whole(folder / "results.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return folder / "results.json"


def _plays(recipe: Recipe, out: Path, stage: Stage, mode: str) -> dict[str, Plays]:
    """By policy, in the recipe's order; those that are played to the end."""
    units = {(unit.part, unit.seed): unit for unit in units_of(recipe) if unit.stage == stage}
    found: dict[str, dict[int, dict[str, list[Trajectory]]]] = {}
    for policy in policies_of(recipe):
        unit = units.get((policy.name, policy.seed))
        if unit and (path := unit.folder(out) / EVALUATIONS[mode]).exists():
            by_task = found.setdefault(policy.name, {}).setdefault(policy.seed or 0, {})
            for play in read_file(path, Trajectory):
                by_task.setdefault(play.task, []).append(play)
    return dict(found)


def _table(recipe: Recipe, split: Split, mode: str, plays: Mapping[str, Plays]) -> Table:
    slots = make_tasks(recipe, split).slots if isinstance(recipe.tasks, Generated) else {}
    rows = []
    for name, by_seed in plays.items():
        found = {score: estimated(by_seed, score, f"{split} {mode} {name}") for score in SCORES}
        scores, tasks = (
            {score: each[0] for score, each in found.items()},
            next(iter(by_seed.values())),
        )
        rows.append(ResultRow(name, len(by_seed), len(tasks), scores, found["success"][1]))
    differences = compared(recipe, plays, ("success", "tests_passed"), f"{split} {mode}")
    went = {
        name: behaviour(
            (play for tasks in by_seed.values() for played in tasks.values() for play in played),
            slots,
        )
        for name, by_seed in plays.items()
        if slots
    }
    return Table(split, mode, rows, differences, _by_kind(plays), went)


def _by_kind(plays: Mapping[str, Plays]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, by_seed in plays.items():
        for played in (played for tasks in by_seed.values() for played in tasks.values()):
            if played[0].kind:
                found[played[0].kind][name].append(mean_of(played, "success"))
    return {
        kind: {name: fmean(values) for name, values in found[kind].items()}
        for kind in sorted(found)
    }


def _logged(folder: Path) -> list[JsonObject]:
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _values(
    logs: Mapping[str, Sequence[JsonObject]], *names: str
) -> dict[str, list[tuple[float, ...]]]:
    """By training, the steps at which it wrote these down, each with its values."""
    found = {
        path: [
            (int(line["step"]), *(float(line[name]) for name in names))
            for line in log
            if names[0] in line
        ]
        for path, log in logs.items()
    }
    return {path: values for path, values in found.items() if values}
