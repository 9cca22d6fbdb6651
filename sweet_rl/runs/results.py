"""What came of a run: each policy's scores with their intervals, the paired differences, costs and curves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.runs.run_folder import write_whole
from memserver_evals.scoring.statistics import Estimate
from sweet_rl.behaviour import behaviour
from sweet_rl.nested import estimate_nested
from sweet_rl.recipe import MAIN, Generated, Recipe
from sweet_rl.runs.bench import GREEDY_PLAYS, SAMPLED_PLAYS
from sweet_rl.runs.run_state import RunState, versions
from sweet_rl.runs.stages import Stage, Unit, policies_of, units_of
from sweet_rl.task_sets import Split, make_tasks
from sweet_rl.trajectories import Trajectory, read_file

SCORES = ("success", "tests_passed", "turns", "answer_characters")
MODES = {"sampled": SAMPLED_PLAYS, "greedy": GREEDY_PLAYS}
SPLITS: dict[Split, Stage] = {"test": "evaluate", "validation": "validate"}
_COMPARED = (
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
class Row:
    policy: str
    seeds: int
    tasks: int
    scores: Mapping[str, Estimate]


@dataclass(frozen=True)
class Paired:
    a: str
    b: str
    score: str
    estimate: Estimate


@dataclass(frozen=True)
class Table:
    split: str
    mode: str
    rows: Sequence[Row]
    differences: Sequence[Paired]
    by_kind: Mapping[str, Mapping[str, float]]  # their success by family
    behaviour: Mapping[str, JsonObject]  # of each, in generated tasks; see `behaviour.behaviour`


@dataclass(frozen=True)
class Results:
    recipe: str  # its name
    tables: Sequence[Table]  # with something in them
    units: Mapping[str, JsonObject]  # figures and seconds of each unit that is done, by its path
    curves: Mapping[str, Sequence[tuple[int, float]]]  # a training's losses by step, by its path
    # a preference training's steps with what the chosen and the rejected gained over the reference, beta times their
    # scores, by its path
    rewards: Mapping[str, Sequence[tuple[int, float, float]]]
    missing: Sequence[str]  # units that aren't done

    def as_json(self) -> JsonObject:
        whole = asdict(self) | {"versions": versions()}
        return dict(json.loads(json.dumps(whole), parse_constant=lambda _: None))


def gather(recipe: Recipe, out: Path) -> Results:
    """Read what is done."""
    state = RunState(out)
    units = units_of(recipe)
    done: dict[str, JsonObject] = {}
    for unit in units:
        figures = state.figures(unit)
        if figures is not None:
            done[unit.path] = {"figures": figures, "seconds": state.seconds(unit)}
    if not done:
        raise InvalidInput(f"{out} has nothing done yet.")
    tables = [
        table
        for split, stage in SPLITS.items()
        for mode, file in MODES.items()
        if (table := _table(recipe, split, mode, _plays(recipe, units, out, stage, file)))
    ]
    logs = {unit.path: _logged(unit.folder(out)) for unit in units}
    return Results(
        recipe.name,
        tables,
        done,
        {path: curve for path, log in logs.items() if (curve := _losses(log))},
        {path: rewards for path, log in logs.items() if (rewards := _rewards(log))},
        [unit.path for unit in units if unit.path not in done],
    )


def write_results(results: Results, folder: Path) -> Path:
    path = folder / "results.json"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n")
    return path


def difference(a: Plays, b: Plays, score: str, name: str) -> Estimate:
    """B minus A, seed by seed and task by task; what all seeds share stands beside each seed."""
    found: dict[int, list[float]] = {}
    for seed in sorted(b):
        other = a.get(seed) or (a.get(0) if len(a) == 1 else None)
        if other is None:
            continue
        found[seed] = [
            _mean(b[seed][task], score) - _mean(other[task], score) for task in sorted(b[seed])
        ]
    return estimate_nested(found, name=name)


def _plays(
    recipe: Recipe, units: Sequence[Unit], out: Path, stage: Stage, file: str
) -> dict[str, Plays]:
    """By policy, in the recipe's order; those that are played to the end."""
    found: dict[str, dict[int, dict[str, list[Trajectory]]]] = {}
    by_key = {(unit.part, unit.seed): unit for unit in units if unit.stage == stage}
    for policy in policies_of(recipe):
        path = by_key[policy.name, policy.seed].folder(out) / file
        if path.exists():
            by_task: dict[str, list[Trajectory]] = {}
            for play in read_file(path, Trajectory):
                by_task.setdefault(play.task, []).append(play)
            found.setdefault(policy.name, {})[policy.seed or 0] = by_task
    return dict(found)


def _table(recipe: Recipe, split: Split, mode: str, plays: Mapping[str, Plays]) -> Table | None:
    if not plays:
        return None
    slots = make_tasks(recipe, split).slots if isinstance(recipe.tasks, Generated) else {}
    rows = [
        Row(
            name,
            len(by_seed),
            len(next(iter(by_seed.values()))),
            {score: _estimate(by_seed, score, f"{split} {mode} {name}") for score in SCORES},
        )
        for name, by_seed in plays.items()
    ]
    variants = [(variant.of, name) for name, variant in recipe.variants.items() if name in plays]
    differences = [
        Paired(a, b, score, difference(plays[a], plays[b], score, f"{split} {mode} {a} {b}"))
        for a, b in (*_COMPARED, *variants)
        if a in plays and b in plays
        for score in ("success", "tests_passed")
    ]
    went = {name: behaviour(_each(by_seed), slots) for name, by_seed in plays.items() if slots}
    return Table(split, mode, rows, differences, _by_kind(plays), went)


def _estimate(by_seed: Plays, score: str, name: str) -> Estimate:
    return estimate_nested(
        {
            seed: [_mean(tasks[task], score) for task in sorted(tasks)]
            for seed, tasks in by_seed.items()
        },
        name=f"{name} {score}",
    )


def _by_kind(plays: Mapping[str, Plays]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, list[float]]] = {}
    for name, by_seed in plays.items():
        for tasks in by_seed.values():
            for played in tasks.values():
                if played[0].kind:
                    of_kind = found.setdefault(played[0].kind, {})
                    of_kind.setdefault(name, []).append(_mean(played, "success"))
    return {
        kind: {name: fmean(values) for name, values in found[kind].items()}
        for kind in sorted(found)
    }


def _each(by_seed: Plays) -> Iterator[Trajectory]:
    for tasks in by_seed.values():
        for played in tasks.values():
            yield from played


def _mean(plays: Sequence[Trajectory], score: str) -> float:
    return fmean(_score(play, score) for play in plays)


def _score(play: Trajectory, score: str) -> float:
    match score:
        case "success":
            return float(play.reward == 1)
        case "tests_passed":
            return play.reward
        case "turns":
            return float(play.turns)
        case _:
            return float(len(play.answer))


def _logged(folder: Path) -> list[JsonObject]:
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _losses(log: Sequence[JsonObject]) -> list[tuple[int, float]]:
    return [(int(line["step"]), float(line["loss"])) for line in log if "loss" in line]


def _rewards(log: Sequence[JsonObject]) -> list[tuple[int, float, float]]:
    return [
        (int(line["step"]), float(line["rewards/chosen"]), float(line["rewards/rejected"]))
        for line in log
        if "rewards/chosen" in line
    ]
