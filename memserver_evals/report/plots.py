"""Pictures: of one run its scores, and how they go over each group; of several runs their main scores."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from memserver_evals.report.overview import Group, systems_of, titles
from memserver_evals.report.style import COLOURS, as_png, make_figure
from memserver_evals.runs.results import Table
from memserver_evals.scoring.statistics import Estimate

USUAL = (
    *("memserver", "full", "window", "summary", "retrieval", "ten-searches-pasted", "copying"),
    *("summary-extract", "memserver-auto"),
)
"""Systems whose colour is the same in the pictures of all runs."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "h", "<", ">")
LINES = ("-", "--", ":")
APART = 0.07
"""Between the marks of two systems at one place, so that none lies under another."""
PAGE_WIDTH, MOST_BARS = 9.6, 26
"""Of the picture of several runs: inches (1,248 pixels, mostly shown as 900), and bars beside each other."""
Points = Sequence[tuple[float, Estimate]]


def draw_all(table: Table) -> dict[str, bytes]:
    height = 1.4 + 0.48 * len(table.systems)
    pictures = {"scores.png": _png(partial(_draw_scores, table=table), 7.5, height)}
    for key, values in table.groups.items():
        if len(values) > 1:
            numeric = all(isinstance(value, int) for value in values)
            draw = _draw_group_lines if numeric else _draw_group_bars
            width = 7.5 if numeric else max(7.5, 1.1 * len(values) + 3)
            pictures[f"by-{key}.png"] = _png(partial(draw, table=table, key=key), width)
    for name, variants in families(table).items():
        draw_these = partial(_draw_curves, table=table, name=name, variants=variants)
        pictures[f"curve-{name}.png"] = _png(draw_these, 8.5)
    return pictures


def draw_groups(groups: Sequence[Group]) -> bytes:
    """A PNG of the main scores of runs: a bar for each system of each group, in as many rows as it takes.

    It is as wide as a page, so that its words can be read there. Raises SetupError: matplotlib isn't installed.
    """
    above = ["\n".join(lines) for lines in titles(groups)]
    rows: list[list[tuple[str, Group]]] = [[]]
    for group in zip(above, groups, strict=True):
        if rows[-1] and sum(_room(each) for _, each in (*rows[-1], group)) > MOST_BARS:
            rows.append([])
        rows[-1].append(group)
    systems = systems_of(groups)
    figure = make_figure(figsize=(PAGE_WIDTH, 0.6 + 2.6 * len(rows)), layout="constrained")
    shown: dict[str, Any] = {}
    longest = max(sum(_room(each) for _, each in row) for row in rows)
    for axes, row in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows, strict=True):
        shown |= _draw_row(axes, row, systems)
        axes.set_xlim(-1, longest - 1)
    legend = {name: shown[name] for name in systems}
    figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=5)
    return as_png(figure)


def families(table: Table) -> dict[str, list[str]]:
    """The curves that belong into one picture: `accuracy` with `accuracy_characters`."""
    found: dict[str, list[str]] = {}
    for name in sorted(table.curves, key=len):
        family = next((known for known in found if name.startswith(f"{known}_")), name)
        found.setdefault(family, []).append(name)
    return found


# --- what is drawn; matplotlib has no types


def _draw_scores(axes: Any, table: Table) -> None:  # noqa: ANN401
    names = list(table.systems)[::-1]
    for place, name in enumerate(names):
        found = table.overall[name].scores[table.main_score]
        if math.isnan(found.mean):
            continue
        colour = _colour(name, table.systems)
        axes.barh(place, found.mean, 0.62, color=colour, xerr=_error(found), error_kw=_whiskers(3))
        end = found.mean if math.isnan(found.high) else max(found.high, found.mean)
        axes.annotate(
            f"{found.mean:.3f}", (end, place), (6, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"{table.main_score.replace('_', ' ')} (95 % interval)")
    axes.set_xlim(*_limits(table))
    axes.grid(axis="x")


def _draw_group_bars(axes: Any, table: Table, key: str) -> None:  # noqa: ANN401
    values = list(table.groups[key])
    width = 0.8 / len(table.systems)
    for index, name in enumerate(table.systems):
        start = width * (index + 0.5) - 0.4
        points = [
            (values.index(value) + start, found) for value, found in _points(table, key, name)
        ]
        _draw_bars(axes, points, width * 0.92, _colour(name, table.systems), name)
    shown = [str(value) for value in values]
    tilted = sum(map(len, shown)) > 60
    axes.set_xticks(
        range(len(values)), shown, rotation=25 if tilted else 0, ha="right" if tilted else "center"
    )
    axes.set_xlabel(key.replace("_", " "))
    axes.set_ylim(*_limits(table))
    _finish(axes, table.main_score)


def _draw_group_lines(axes: Any, table: Table, key: str) -> None:  # noqa: ANN401
    """Lines over numbers that are evenly spaced; they break where the sample has none of the task's values."""
    places = list(table.scales.get(key) or table.groups[key])
    for name in table.systems:
        points = [(places.index(value), found) for value, found in _points(table, key, name)]
        _draw_line(axes, points, name, table.systems)
    axes.set_xticks(range(len(places)), [str(value) for value in places])
    axes.set_xlabel(key.replace("_", " "))
    axes.set_ylim(*_limits(table))
    _finish(axes, table.main_score)


def _draw_curves(axes: Any, table: Table, name: str, variants: Sequence[str]) -> None:  # noqa: ANN401
    """Lines over numbers that are evenly spaced, whatever they are: `all` is the last."""
    places = list(table.curves[variants[0]])
    for variant, style in zip(variants, LINES, strict=False):
        suffix = f" ({variant.removeprefix(name).strip('_')})" if variant != name else ""
        for system in table.systems:
            if variant != name and _same(table, system, name, variant):
                continue
            points = [
                (places.index(x), found[system])
                for x, found in table.curves[variant].items()
                if x in places and system in found and not math.isnan(found[system].mean)
            ]
            _draw_line(axes, points, system, table.systems, style, suffix)
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel("number of documents or results")
    axes.set_ylim(0, 1.08)
    _finish(axes, name)


def _draw_row(
    axes: Any,  # noqa: ANN401
    row: Sequence[tuple[str, Group]],
    systems: Sequence[str],
) -> dict[str, Any]:
    """Groups of bars beside each other; the bars by their systems."""
    start, centres, shown = 0.0, [], {}
    ends = [0.0, 1.0]
    for _, group in row:
        for place, (name, found) in enumerate(group.means.items(), start=int(start)):
            error = {"yerr": _error(found), "error_kw": _whiskers(2)}
            shown[name] = axes.bar(place, found.mean, 0.9, color=_colour(name, systems), **error)
            end = found.mean if math.isnan(found.high) else max(found.mean, found.high)
            label = f"{found.mean:.2f}".replace("0.", ".", 1)
            above = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes.annotate(label, (place, end), (0, 3), **above)
            ends += [found.mean, end]
        centres.append(start + (len(group.means) - 1) / 2)
        start += _room(group)
    axes.set_ylim(min(ends), 1.12 * max(ends))
    axes.set_xticks(centres, [title for title, _ in row])
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    axes.set_ylabel("score (95 % interval)")
    return shown


def _room(group: Group) -> int:
    """Places for bars, and for what parts the group from the next; a title takes as much as three bars."""
    return max(len(group.means), 3) + 1


def _points(table: Table, key: str, system: str) -> list[tuple[Any, Estimate]]:
    """A system's main score for each value of a group."""
    return [
        (value, summaries[system].scores[table.main_score])
        for value, summaries in table.groups[key].items()
        if system in summaries and not math.isnan(summaries[system].scores[table.main_score].mean)
    ]


def _same(table: Table, system: str, name: str, variant: str) -> bool:
    """Whether a variant makes no difference to a system: one line shows both."""
    curve, other = table.curves[name], table.curves[variant]
    return all(
        other[x][system].mean == found[system].mean
        for x, found in curve.items()
        if x in other and system in found and system in other[x]
    )


def _draw_bars(axes: Any, points: Points, width: float, colour: str, label: str) -> None:  # noqa: ANN401
    for number, (place, found) in enumerate(points):
        error = {"yerr": _error(found), "error_kw": _whiskers(2)}
        name = label if label and not number else None
        axes.bar(place, found.mean, width, color=colour, label=name, **error)


def _draw_line(
    axes: Any,  # noqa: ANN401
    points: Points,
    system: str,
    systems: Sequence[str],
    style: str = "-",
    suffix: str = "",
) -> None:
    if not points:
        return
    colour, mark = _colour(system, systems), MARKS[_place(system, systems) % len(MARKS)]
    place, last = systems.index(system), len(systems) - 1
    moved = APART * (place - last / 2)
    wide = 1.5 + 1.5 * (last - place) / max(1, last)  # what lies under another line is still seen
    line = {"color": colour, "marker": mark, "ms": 5, "lw": wide, "ls": style}
    for number, run in enumerate(_unbroken(points)):
        label = None if number else f"{system}{suffix}"
        xs = [x + moved for x, _ in run]
        axes.plot(xs, [found.mean for _, found in run], label=label, **line)
        ends = [(x + moved, found.low, found.high) for x, found in run if not math.isnan(found.low)]
        if len(ends) == 1:
            axes.vlines(*ends[0], color=colour, lw=1)
        elif ends:
            axes.fill_between(*zip(*ends, strict=True), color=colour, alpha=0.12, lw=0)


def _unbroken(points: Points) -> list[list[tuple[float, Estimate]]]:
    """Points at places beside each other, each row of them by itself."""
    runs: list[list[tuple[float, Estimate]]] = []
    for point in points:
        if runs and point[0] - runs[-1][-1][0] == 1:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _finish(axes: Any, score: str) -> None:  # noqa: ANN401
    """Lines to read the heights by, and a legend beside the picture."""
    axes.set_ylabel(f"{score.replace('_', ' ')} (95 % interval)")
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    axes.legend(bbox_to_anchor=(1.01, 1), loc="upper left")


def _limits(table: Table) -> tuple[float, float]:
    """From 0 to 1, or to where the scores reach if they are others."""
    found = [each.scores[table.main_score] for each in table.overall.values()]
    ends = [value for each in found for value in (each.low, each.high, each.mean)]
    known = [value for value in ends if not math.isnan(value)] or [0.0]
    low, high = min(0.0, *known), max(1.0, *known)
    return low, high + 0.08 * (high - low)


def _error(found: Estimate) -> list[list[float]] | None:
    if math.isnan(found.low):
        return None
    return [[max(0.0, found.mean - found.low)], [max(0.0, found.high - found.mean)]]


def _whiskers(cap: float) -> dict[str, Any]:
    return {"ecolor": "#20262d", "capsize": cap, "elinewidth": 1}


def _colour(system: str, systems: Sequence[str]) -> str:
    return COLOURS[_place(system, systems) % len(COLOURS)]


def _place(system: str, systems: Sequence[str]) -> int:
    """A system has the same colour and mark in every picture."""
    if system in USUAL:
        return USUAL.index(system)
    others = [name for name in systems if name not in USUAL]
    return len(USUAL) + others.index(system)


def _png(draw: Callable[[Any], None], width: float, height: float = 4.2) -> bytes:
    """What a function draws on its axes. Raises SetupError without matplotlib."""
    figure = make_figure(figsize=(width, height), layout="tight")
    draw(figure.subplots())
    return as_png(figure)
