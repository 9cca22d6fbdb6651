"""Runs of evaluations and trainings in the results folder, as they wrote them; nothing here writes.

A run is a folder with a manifest.json or a results.json (an evaluation, also of trained policies) or a metrics.jsonl (a training).
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memserver.errors import InvalidInput, NotFound
from memserver.wire.operations import Report, ReportContent

MANIFEST, RESULTS = "manifest.json", "results.json"
METRICS, PLAN, FIGURES = "metrics.jsonl", "training.json", "figures.json"
MARKS = (
    ("evaluation", MANIFEST, RESULTS),
    ("training", METRICS, FIGURES),
    ("evaluation", RESULTS, RESULTS),
)
"""A kind of run, the file that shows it, and the one that it has once it is finished."""
MOST_DEEP, MOST_RUNS = 6, 1000
MOST_BYTES = 50_000_000
MOST_POINTS = 300
"""Of a curve: a picture shows no more."""


def find_reports(folder: Path) -> list[Report]:
    """The newest runs in the folder, the oldest of them first."""
    found = sorted(_walk(folder).values(), key=lambda report: report.updated_at)
    return found[-MOST_RUNS:]


def read_report(folder: Path, name: str) -> ReportContent:
    """One run's report.

    Raises:
        NotFound: there is no such run; names that lead out of the folder are none.
        InvalidInput: a file of it is damaged, or larger than 50 MB.
    """
    runs = {report.name: (path, report) for path, report in _walk(folder).items()}
    if name not in runs:
        raise NotFound(
            f"There is no run {name!r} in the results folder.", hint="GET /v1/reports lists them."
        )
    run, report = runs[name]
    if report.kind == "evaluation":
        settings, content = _read_json(folder, run / MANIFEST), _read_json(folder, run / RESULTS)
        settings.pop("examples", None)  # their names; there may be thousands
        content.pop("run", None)
        curves: dict[str, list[tuple[float, float]]] = {}
    else:
        settings, content = _read_json(folder, run / PLAN), _read_json(folder, run / FIGURES)
        curves = _curves(_read(folder, run / METRICS))
    return ReportContent(**report.model_dump(), settings=settings, content=content, curves=curves)


def _walk(folder: Path) -> dict[Path, Report]:
    found: dict[Path, Report] = {}
    for place, inner, files in os.walk(folder):
        path = Path(place)
        if len(path.relative_to(folder).parts) >= MOST_DEEP:
            inner.clear()
        for kind, mark, end in MARKS:
            if mark in files:
                name = path.name if path == folder else path.relative_to(folder).as_posix()
                changed = datetime.fromtimestamp((path / mark).lstat().st_mtime, UTC)
                values = {"name": name, "kind": kind, "title": path.name, "finished": end in files}
                found[path] = Report.model_validate({**values, "updated_at": changed})
                break
    return found


def _read(folder: Path, path: Path) -> str:
    if not path.exists():  # it is still running
        return ""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise NotFound(f"{path.name} of the run is a link that leads out of the results folder.")
    if path.stat().st_size > MOST_BYTES:
        raise InvalidInput(f"{path.name} of the run is larger than {MOST_BYTES:,} bytes.")
    return path.read_text(encoding="utf-8", errors="replace")


def _read_json(folder: Path, path: Path) -> dict[str, Any]:
    text = _read(folder, path)
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        raise InvalidInput(
            f"{path.name} of the run is no JSON: {error}", hint="Is it being written? Try again."
        ) from error
    return found if isinstance(found, dict) else {}


def _curves(lines: str) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            logged = json.loads(line)
        except ValueError:
            continue  # the last one may be half written
        if isinstance(logged, Mapping) and "train_runtime" not in logged:  # the sums at the end
            step = logged.get("step", number)
            for name, value in logged.items():
                if name not in {"step", "epoch"} and _is_finite(value) and _is_finite(step):
                    curves[name].append((float(step), float(value)))
    return {name: _thinned(points) for name, points in sorted(curves.items())}


def _is_finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(float(value)) < float("inf")  # type: ignore[arg-type]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    stride = -(-len(points) // MOST_POINTS)
    return points[::stride] if (len(points) - 1) % stride == 0 else [*points[::stride], points[-1]]
