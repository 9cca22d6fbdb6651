"""A run's results for people: report.md, and pictures of the scores and of the trainings."""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from memserver.errors import SetupError, install_extra
from memserver.messages import JsonObject
from memserver_evals.report.plots import COLOURS
from memserver_evals.runs.run_folder import write_whole
from memserver_evals.scoring.statistics import Estimate
from sweet_rl.behaviour import ENDS
from sweet_rl.runs.results import Results, Table

MOST_NAMED = 12
"""Units that aren't done; results.json names all."""
MOST_KINDS = 8
"""Of the kinds of mistakes of each critic; results.json has all."""
_LEGEND = 0.09
"""Inches of height for each training's name."""
_HEAD = ("policy", "seeds", "success", "tests passed", "turns", "answer characters")


def write_report(results: Results, folder: Path) -> Path:
    """Write report.md and its pictures; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "scores.png": _draw_scores(results),
        "curves.png": _draw_curves(results),
        "rewards.png": _draw_rewards(results),
    }
    for name, content in pictures.items():
        if content is not None:
            (folder / name).write_bytes(content)
    path = folder / "report.md"
    write_whole(path, _text(results, [name for name, found in pictures.items() if found]))
    return path


def shown(found: Estimate, digits: int = 3, *, sign: bool = False) -> str:
    if math.isnan(found.mean):
        return "-"
    form = f"{'+' if sign else ''}.{digits}f"
    if math.isnan(found.low):
        return f"{found.mean:{form}}"
    return f"{found.mean:{form}} [{found.low:{form}}, {found.high:{form}}]"


def rows_of(table: Table) -> list[tuple[str, ...]]:
    return [
        (
            row.policy,
            str(row.seeds),
            shown(row.scores["success"]),
            shown(row.scores["tests_passed"]),
            shown(row.scores["turns"], 2),
            shown(row.scores["answer_characters"], 0),
        )
        for row in table.rows
    ]


def title_of(table: Table) -> str:
    how = "drawn at temperature 1" if table.mode == "sampled" else "greedy"
    tasks = max(row.tasks for row in table.rows)
    return f"{table.split}, {how}, {tasks} tasks"


def _text(results: Results, pictures: Sequence[str]) -> str:
    parts = [
        f"# {results.recipe}\n\nMeans with 95 % intervals, by a bootstrap over seeds and tasks."
    ]
    parts += [f"![{name}]({name})" for name in pictures]
    for table in results.tables:
        parts.append(f"## {title_of(table)}\n\n{_markdown(_HEAD, rows_of(table))}")
        if table.differences:
            told = [
                (f"{each.b} - {each.a}", each.score, shown(each.estimate, sign=True))
                for each in table.differences
            ]
            parts.append(_markdown(("difference", "score", "mean"), told))
        if table.behaviour:
            parts.append(_behaviour(table))
        if table.by_kind:
            parts.append(_kinds(table))
    parts.append(_critics(results.units))
    parts.append(_costs(results.units))
    if results.missing:
        first = ", ".join(results.missing[:MOST_NAMED])
        more = ", …" if len(results.missing) > MOST_NAMED else ""
        parts.append(f"Not done: {len(results.missing)} units ({first}{more}).")
    return "\n\n".join(part for part in parts if part) + "\n"


def _behaviour(table: Table) -> str:
    names = (*ENDS, "repeated", "idle")
    rows = [
        (policy, *(_number(found[name]) for name in names))
        for policy, found in table.behaviour.items()
    ]
    return (
        "How collaborations end (shares), and questions that bring nothing (for each collaboration):\n\n"
        + _markdown(("policy", *names), rows)
    )


def _kinds(table: Table) -> str:
    names = [row.policy for row in table.rows]
    rows = [
        (kind, *(f"{found[name]:.3f}" if name in found else "-" for name in names))
        for kind, found in table.by_kind.items()
    ]
    return "Success by family:\n\n" + _markdown(("family", *names), rows)


def _critics(units: Mapping[str, JsonObject]) -> str:
    rows = []
    for path, done in units.items():
        figures = done["figures"]
        if "/critic" in path:
            rows.append(
                (path, "accuracy on pairs held out", _number(figures.get("held_out_accuracy")))
            )
        if "/rank" in path:
            rows.append((path, "agreement with the oracle", _number(figures.get("agreement"))))
            unseen = figures.get("held_out", {}).get("agreement")
            rows.append((path, "the same, on tasks held out", _number(unseen)))
            told = (
                f"{_number(figures.get('best'))} (chance {_number(figures.get('chance_of_best'))})"
            )
            rows.append((path, "its first is one of the oracle's first", told))
            rows += [
                (path, f"{name} ({found['pairs']} pairs)", _number(found["right"]))
                for name, found in list(figures.get("by_kind", {}).items())[:MOST_KINDS]
            ]
        if "/actor" in path and (told_of := figures.get("by_oracle")):
            told = ", ".join(f"{name} {share:.3f}" for name, share in told_of.items())
            rows.append((path, "its pairs by the oracle", told))
    return "## Critics\n\n" + _markdown(("unit", "figure", "value"), rows) if rows else ""


def _costs(units: Mapping[str, JsonObject]) -> str:
    rows = [
        (
            path,
            f"{done['seconds']:.0f}",
            str(done["figures"].get("steps", "-")),
            str(_generated(path, done["figures"])),
        )
        for path, done in units.items()
    ]
    head = ("unit", "seconds", "optimizer steps", "generated tokens")
    return "## What it took\n\n" + _markdown(head, rows)


def _generated(path: str, figures: JsonObject) -> Any:  # noqa: ANN401 - JSON
    if "/collect" in path or "/candidates" in path:
        return figures.get("tokens", "-")
    if "sampled" in figures:
        return sum(figures[mode]["tokens"] for mode in ("sampled", "greedy") if mode in figures)
    return figures.get("extra_tokens", "-")


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: Any) -> str:  # noqa: ANN401 - JSON
    return "-" if value is None else f"{value:.3f}"


def _draw_scores(results: Results) -> bytes | None:
    split = "test" if any(table.split == "test" for table in results.tables) else "validation"
    tables = [table for table in results.tables if table.split == split]
    if not tables:
        return None
    pyplot = _pyplot()
    height = 1.2 + 0.42 * max(len(table.rows) for table in tables)
    figure, axes = pyplot.subplots(
        1, len(tables), figsize=(5.2 * len(tables) + 1, height), squeeze=False, sharey=False
    )
    for place, table in zip(axes[0], tables, strict=True):
        _bars(place, table)
    return _png(pyplot, figure)


def _bars(axes: Any, table: Table) -> None:  # noqa: ANN401 - matplotlib has no types
    names = [row.policy for row in table.rows]
    for offset, score, colour in (
        (-0.18, "success", COLOURS[0]),
        (0.18, "tests_passed", COLOURS[1]),
    ):
        for place, row in enumerate(table.rows):
            found = row.scores[score]
            label = score.replace("_", " ") if place == 0 else None
            axes.barh(place + offset, found.mean, height=0.34, color=colour, label=label)
            if not math.isnan(found.low):
                error = [[max(0, found.mean - found.low)], [max(0, found.high - found.mean)]]
                axes.errorbar(
                    found.mean, place + offset, xerr=error, color="#20262d", capsize=2, fmt="none"
                )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title(title_of(table), fontsize=10)
    axes.grid(axis="x", color="#e3e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)


def _draw_curves(results: Results) -> bytes | None:
    return _draw_stages(results.curves, "loss by step", ("-",))


def _draw_rewards(results: Results) -> bytes | None:
    """Whether a preference training makes the chosen likelier, or both sides less likely."""
    title = "reward by step of the chosen, dashed of the rejected"
    return _draw_stages(results.rewards, title, ("-", "--"))


def _draw_stages(
    found: Mapping[str, Sequence[tuple[float, ...]]], title: str, styles: Sequence[str]
) -> bytes | None:
    """What trainings wrote down, by step: a place for each stage, and there a colour for each training."""
    stages: dict[str, dict[str, Sequence[tuple[float, ...]]]] = {}
    for path, curve in found.items():
        stage = path.split("/")[1].split(".")[0]
        stages.setdefault(stage, {})[path] = curve
    if not stages:
        return None
    pyplot = _pyplot()
    columns = min(3, len(stages))
    rows = math.ceil(len(stages) / columns)
    most = max(map(len, stages.values()))
    size = (4.4 * columns, (3.3 + _LEGEND * most) * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    for place in axes.flat[len(stages) :]:
        place.set_axis_off()
    for place, (stage, curves) in zip(axes.flat, stages.items(), strict=False):
        for count, (path, curve) in enumerate(curves.items()):
            whose = path.removeprefix("shared/").replace(f"/{stage}", "")
            steps, *values = zip(*curve, strict=True)
            again, number = divmod(count, len(COLOURS))
            colour, width = COLOURS[number], 1.2 + again
            for style, each in zip(styles, values, strict=True):
                label = whose if style == styles[0] else None
                place.plot(steps, each, style, color=colour, lw=width, label=label)
        place.set_title(f"{stage}: {title}", fontsize=9)
        place.grid(color="#e3e7eb", lw=0.8)
        if len(curves) > 1:  # below: inside it would hide lines
            place.legend(
                frameon=False, fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.1)
            )
    return _png(pyplot, figure)


def _pyplot() -> Any:  # noqa: ANN401 - matplotlib has no types
    try:
        import matplotlib  # noqa: PLC0415 - an extra, and slow to load
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError as error:
        raise SetupError("Pictures need matplotlib.", hint=install_extra("train")) from error
    matplotlib.use("Agg")
    return pyplot


def _png(pyplot: Any, figure: Any) -> bytes:  # noqa: ANN401
    figure.tight_layout()
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    pyplot.close(figure)
    return buffer.getvalue()
