"""Runs of evaluations and trainings in the results folder: tables, pictures, and two of them side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import Response

from memserver.client.models import ReportContent
from memserver.console.charts import Frame, short
from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep
from memserver.errors import InvalidInput, NotFound

router = PageRouter()
MOST_SHOWN = 100
WIDE, HIGH = 320.0, 120.0
FIRST = ("loss", "eval_loss", "rewards/margins", "rewards/accuracies", "mean_token_accuracy")
"""Curves that are looked at first."""
Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A score with its interval, and where these lie in a picture that is 200 wide."""

    mean: float
    low: float
    high: float
    count: int
    frame: Frame

    @property
    def places(self) -> tuple[float, float, float]:
        return self.frame.x(self.low), self.frame.x(self.mean), self.frame.x(self.high)


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """One score: of each system an interval for each run, None where a run lacks it."""

    name: str
    rows: Sequence[tuple[str, Sequence[Interval | None]]]


@dataclass(frozen=True, slots=True)
class CurvePicture:
    name: str
    lines: Sequence[str]
    last: Sequence[str]
    frame: Frame
    low: str
    high: str
    until: str


@router.get("/runs")
async def list_runs(visit: VisitDep) -> Response:
    try:
        found = await visit.api.operator.reports(limit=MOST_SHOWN, order="desc")
    except NotFound:
        return visit.page("runs.html", section="runs", reports=None)
    return visit.page("runs.html", section="runs", reports=found.items)


@router.get("/runs/show")
async def show_runs(
    visit: VisitDep, name: Annotated[list[str] | None, Query(max_length=6)] = None
) -> Response:
    if not name:
        return visit.go("runs")
    runs = [await visit.api.operator.report(each) for each in name]
    kinds = {run.kind for run in runs}
    if len(kinds) > 1:
        raise InvalidInput(
            "An evaluation and a training have nothing to compare.", hint="Choose two of one kind."
        )
    return visit.page(
        "run.html",
        section="runs",
        runs=runs,
        kind=kinds.pop(),
        tables=score_tables(runs),
        pictures=curve_pictures(runs),
        figures=figures(runs),
    )


def score_tables(runs: Sequence[ReportContent]) -> list[ScoreTable]:
    """The scores of evaluations, the main one first."""
    systems = [_systems(run.content) for run in runs]
    main = next((run.content.get("main_score") for run in runs), None)
    names = {
        score: None for each in systems for system in each.values() for score in _scores(system)
    }
    every_system = {name: None for each in systems for name in each}
    ordered = sorted(names, key=lambda name: name != main)
    tables = []
    for score in ordered:
        rows = [
            (name, [_scores(each.get(name)).get(score) for each in systems])
            for name in every_system
        ]
        highest = max(
            (_number(each, "high") for _, found in rows for each in found if each), default=1.0
        )
        frame = Frame(0.0, max(highest, 1.0) if highest <= 1 else highest, 0.0, 1.0, 200.0, 16.0)
        tables.append(
            ScoreTable(
                score, [(name, [_interval(each, frame) for each in found]) for name, found in rows]
            )
        )
    return tables


def curve_pictures(runs: Sequence[ReportContent]) -> list[CurvePicture]:
    """The curves of trainings, those that say most first."""
    names = {name: None for run in runs for name in run.curves}
    ordered = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    return [_picture(name, [run.curves.get(name, ()) for run in runs]) for name in ordered]


def figures(runs: Sequence[ReportContent]) -> list[tuple[str, Sequence[str]]]:
    """What runs were set to, and what trainings wrote at their end, where it is one value."""
    found = [
        {**_flat(run.settings), **_flat(run.content if run.kind == "training" else {})}
        for run in runs
    ]
    names = {name: None for each in found for name in each}
    return [(name, [each.get(name, "-") for each in found]) for name in names]


def _picture(name: str, curves: Sequence[Curve]) -> CurvePicture:
    frame = Frame.around(curves, width=WIDE, height=HIGH)
    return CurvePicture(
        name,
        [frame.line(curve) for curve in curves],
        [short(curve[-1][1]) if curve else "-" for curve in curves],
        frame,
        short(min(y for curve in curves for _, y in curve)),
        short(max(y for curve in curves for _, y in curve)),
        short(frame.right),
    )


def _interval(score: Mapping[str, Any] | None, frame: Frame) -> Interval | None:
    if not score:
        return None
    mean = _number(score, "mean")
    return Interval(
        mean,
        _number(score, "low", mean),
        _number(score, "high", mean),
        int(_number(score, "count")),
        frame,
    )


def _number(values: Mapping[str, Any], name: str, otherwise: float = 0.0) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else otherwise


def _systems(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was scored, by name; of a run of ColBench its policies, with the scores of each of its tables."""
    if "tables" not in content:
        return _mapping(content.get("systems"))
    policies: dict[str, dict[str, Any]] = {}
    for table in content["tables"]:
        for row in table.get("rows", ()):
            scores = policies.setdefault(str(row.get("policy")), {"scores": {}})["scores"]
            for name, score in _mapping(row.get("scores")).items():
                scores[f"{name} ({table.get('split')}, {table.get('mode')})"] = score
    return policies


def _scores(system: object) -> Mapping[str, Any]:
    scores = _mapping(_mapping(system).get("scores"))
    return {name: each for name, each in scores.items() if isinstance(each, Mapping)}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        elif value is not None and not isinstance(value, list):
            found[f"{before}{name}"] = short(value) if isinstance(value, float) else str(value)
    return found
