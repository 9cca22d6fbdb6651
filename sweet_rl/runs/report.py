"""A run's results for people: report.md, and pictures of the scores and of the trainings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memserver.messages import JsonObject
from memserver_evals.report.markdown import table as markdown
from memserver_evals.report.style import COLOURS, as_png, make_figure
from memserver_evals.runs.run_folder import write_whole
from memserver_evals.scoring.statistics import Estimate
from sweet_rl.oracle import ENDS
from sweet_rl.runs.grid_report import draw_grid, grid_text
from sweet_rl.runs.results import Results, Table

MOST_NAMED = 12
"""Units that aren't done; results.json names all."""
MOST_KINDS = 8
"""Of the kinds of mistakes of each critic; results.json has all."""
NAMES = {
    "zero-shot": "untrained",
    "warm-start": "warm start",
    "rft": "rejection fine-tuning",
    "rft-matched": "rejection fine-tuning, as many tokens",
    "mdpo": "multi-turn DPO",
    "sweet": "SWEET-RL",
}
"""Of policies, as pictures have them."""
_LEGEND = 0.09
"""Inches of height for each training's name."""
HEAD = (
    *("policy", "seeds", "success", "its t-interval over seeds", "success by =="),
    *("tests passed", "turns", "answer characters"),
)
_REWARDS = "reward of the chosen, dashed: of the rejected"
_ENDS = (
    "How collaborations end (shares), and questions that bring nothing (for each collaboration):"
)


_CORRELATIONS = """## What candidates are worth

Within states, the rank correlation of what a critic says of candidates with the share of plays that succeed after each; 95 %
intervals by a bootstrap over tasks. States of tasks that no critic has learnt from come first; multi-turn DPO has learnt all.
"The plays themselves" is how one half of the plays orders them by the other."""


def write_report(results: Results, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "scores.png": _draw_scores(results),
        "curves.png": _draw_stages(results.curves, "loss", ("-",)),
        "rewards.png": _draw_stages(results.rewards, _REWARDS, ("-", "--")),
        "temperatures.png": draw_grid(results.grid) if results.grid else None,
    }
    for name, content in pictures.items():
        if content is not None:
            (folder / name).write_bytes(content)
    path = folder / "report.md"
    write_whole(path, _text(results, [name for name, found in pictures.items() if found]))
    return path


def rows_of(table: Table) -> list[tuple[str, ...]]:
    """A table's rows as text, under `HEAD`."""
    digits = {"success_by_operator": 3, "tests_passed": 3, "turns": 2, "answer_characters": 0}
    return [
        (
            row.policy,
            str(row.seeds),
            row.scores["success"].shown(),
            row.by_seed.interval() or "-",
            *(row.scores[score].shown(places, of_mean=places) for score, places in digits.items()),
        )
        for row in table.rows
    ]


def title_of(table: Table) -> str:
    how = "drawn at temperature 1" if table.mode == "sampled" else "greedy"
    return f"{table.split}, {how}, {max(row.tasks for row in table.rows)} tasks"


def _text(results: Results, pictures: Sequence[str]) -> str:
    parts = [
        f"# {results.recipe}\n\nMeans with 95 % intervals, by a bootstrap over seeds and families of tasks."
    ]
    parts += [f"![{name}]({name})" for name in pictures]
    for table in results.tables:
        parts += _parts_of(table)
    if results.grid:
        parts.append(grid_text(results.grid))
    if rows := list(_correlations(results.units)):
        head = ("unit", "ordered by", "rank correlation", "states")
        parts.append(f"{_CORRELATIONS}\n\n{markdown(head, rows)}")
    if rows := list(_critics(results.units)):
        parts.append(f"## Critics\n\n{markdown(('unit', 'figure', 'value'), rows)}")
    parts.append(f"## What it took\n\n{_costs(results.units)}")
    if results.missing:
        first = ", ".join(results.missing[:MOST_NAMED])
        more = ", …" if len(results.missing) > MOST_NAMED else ""
        parts.append(f"Not done: {len(results.missing)} units ({first}{more}).")
    return "\n\n".join(parts) + "\n"


def _parts_of(table: Table) -> Iterator[str]:
    yield f"## {title_of(table)}\n\n{markdown(HEAD, rows_of(table))}"
    if table.differences:
        rows = [
            (
                *(f"{each.b} - {each.a}", each.score, each.estimate.shown(sign=True)),
                each.by_seed.interval(sign=True) or "-",
            )
            for each in table.differences
        ]
        yield markdown(("difference", "score", "mean", "its t-interval over seeds"), rows)
    names = (*ENDS, "repeated", "idle")
    if table.behaviour:
        ends = [
            (policy, *(_number(found[name]) for name in names))
            for policy, found in table.behaviour.items()
        ]
        yield f"{_ENDS}\n\n{markdown(('policy', *names), ends)}"
    if table.by_kind:
        policies = [row.policy for row in table.rows]
        kinds = [
            (kind, *(_number(found.get(name)) for name in policies))
            for kind, found in table.by_kind.items()
        ]
        yield f"Success by family:\n\n{markdown(('family', *policies), kinds)}"


def _correlations(units: Mapping[str, JsonObject]) -> Iterator[tuple[str, ...]]:
    for path, done in units.items():
        for name, found in done["figures"].get("rank_correlation", {}).items():
            yield path, name, Estimate(**found).shown(), str(found["count"])


def _critics(units: Mapping[str, JsonObject]) -> Iterator[tuple[str, str, str]]:
    """How well critics tell good from bad."""
    for path, done in units.items():
        figures = done["figures"]
        if "/critic" in path:
            yield path, "accuracy on pairs held out", _number(figures.get("held_out_accuracy"))
        if "/rank" in path:
            yield path, "agreement with the oracle", _number(figures.get("agreement"))
            if "nats" in figures:
                sizes = f"{figures['nats']:.2f}; {figures['nats_99']:.2f}"
                yield path, "size of an advantage in nats: mean; 99 of 100 below", sizes
            unseen = figures.get("held_out", {}).get("agreement")
            yield path, "the same, on tasks held out", _number(unseen)
            best, chance = (_number(figures.get(name)) for name in ("best", "chance_of_best"))
            yield path, "its first is one of the oracle's first", f"{best} (chance {chance})"
            for name, found in list(figures.get("by_kind", {}).items())[:MOST_KINDS]:
                yield path, f"{name} ({found['pairs']} pairs)", _number(found["right"])
        if "/actor" in path and (judged := figures.get("by_oracle")):
            shares = ", ".join(f"{name} {share:.3f}" for name, share in judged.items())
            yield path, "its pairs by the oracle", shares


def _costs(units: Mapping[str, JsonObject]) -> str:
    rows = []
    for path, done in units.items():
        figures, seconds = done["figures"], f"{done['seconds']:.0f}"
        steps = str(figures.get("steps", "-"))
        rows.append((path, seconds, steps, str(_generated(figures))))
    return markdown(("unit", "seconds", "optimizer steps", "generated tokens"), rows)


def _generated(figures: JsonObject) -> Any:  # noqa: ANN401 - JSON
    if "sampled" in figures:
        return sum(figures[mode]["tokens"] for mode in ("sampled", "greedy") if mode in figures)
    return figures.get("tokens", figures.get("extra_tokens", "-"))


def _number(value: Any) -> str:  # noqa: ANN401 - JSON
    return "-" if value is None else f"{value:.3f}"


def _draw_scores(results: Results) -> bytes | None:
    """Success and tests passed of each policy, in each table of the test split, or else of validation."""
    split = "test" if any(table.split == "test" for table in results.tables) else "validation"
    tables = [table for table in results.tables if table.split == split]
    if not tables:
        return None
    height = 1.2 + 0.42 * max(len(table.rows) for table in tables)
    figure = make_figure(figsize=(5.2 * len(tables) + 1, height), layout="tight")
    for place, table in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        _draw_bars(place, table)
    return as_png(figure)


def _draw_bars(axes: Any, table: Table) -> None:  # noqa: ANN401 - matplotlib has no types
    names = [NAMES.get(row.policy, row.policy) for row in table.rows]
    for offset, score, colour in zip(
        (-0.18, 0.18), ("success", "tests_passed"), COLOURS, strict=False
    ):
        found = [row.scores[score] for row in table.rows]
        errors = [
            (0, 0) if math.isnan(each.low) else (each.mean - each.low, each.high - each.mean)
            for each in found
        ]
        axes.barh(
            [place + offset for place in range(len(names))],
            [each.mean for each in found],
            height=0.34,
            color=colour,
            label=score.replace("_", " "),
            xerr=[[max(0, each) for each in ends] for ends in zip(*errors, strict=True)],
            error_kw={"ecolor": "#20262d", "capsize": 2},
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("share (95 % interval)")
    axes.set_title(title_of(table), fontsize=10)
    axes.grid(axis="x")
    axes.legend(fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1.05))


def _draw_stages(
    found: Mapping[str, Sequence[tuple[float, ...]]], title: str, styles: Sequence[str]
) -> bytes | None:
    """What trainings wrote down, by step: a place for each stage, and there a colour for each training."""
    stages: dict[str, dict[str, Sequence[tuple[float, ...]]]] = {}
    for path, curve in found.items():
        stages.setdefault(path.split("/")[1].split(".")[0], {})[path] = curve
    if not stages:
        return None
    columns = min(3, len(stages))
    rows = math.ceil(len(stages) / columns)
    most = max(map(len, stages.values()))
    figure = make_figure(figsize=(4.4 * columns, (3.3 + _LEGEND * most) * rows), layout="tight")
    axes = figure.subplots(rows, columns, squeeze=False)
    for place in axes.flat[len(stages) :]:
        place.set_axis_off()
    for place, (stage, curves) in zip(axes.flat, stages.items(), strict=False):
        for count, (path, curve) in enumerate(curves.items()):
            steps, *values = zip(*curve, strict=True)
            again, number = divmod(count, len(COLOURS))
            label = path.removeprefix("shared/").replace(f"/{stage}", "")
            for style, each in zip(styles, values, strict=True):
                place.plot(steps, each, style, color=COLOURS[number], lw=1.2 + again, label=label)
                label = "_"  # of several lines one is in the legend
        place.set_title(stage, fontsize=10)
        place.set_xlabel("training step")
        place.set_ylabel(title, fontsize=8)
        place.grid()
        if len(curves) > 1:  # below: inside it would hide lines
            place.legend(fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.18))
    return as_png(figure)
