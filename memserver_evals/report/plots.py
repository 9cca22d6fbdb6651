"""The pictures of a run: each system's main score, and how it goes over each group."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

from memserver.errors import SetupError, install_extra
from memserver_evals.runs.results import Summary, Table
from memserver_evals.scoring.statistics import Estimate

COLOURS = (
    "#2456a6", "#d1702a", "#2f8f5b", "#8a4fa0", "#b03a48", "#5f6b7a",
    "#a08a1f", "#2b9aa8", "#6fa3e0", "#c58fd0", "#3d3d3d", "#98b83c",
)  # fmt: skip
USUAL = (
    "memserver",
    "full",
    "window",
    "summary",
    "retrieval",
    "ten-searches-pasted",
    "copying",
    "summary-extract",
    "memserver-auto",
)
"""Systems whose colour is the same in the pictures of all runs."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "h", "<", ">")
STYLES = ("-", "--", ":")
WIDE = 20
"""The ratio of a group's largest to its smallest number from which the axis is logarithmic."""


def draw_all(table: Table) -> dict[str, bytes]:
    pictures = {"scores.png": draw_png(partial(_bars, table=table), _height(table))}
    for key, values in table.groups.items():
        if len(values) > 1:
            numeric = all(isinstance(value, int) for value in values)
            draw = _lines if numeric else _grouped_bars
            width = 7.5 if numeric else max(7.5, 1.1 * len(values) + 3)
            pictures[f"by-{key}.png"] = draw_png(partial(draw, table=table, key=key), 4.2, width)
    for name, variants in families(table).items():
        draw_these = partial(_curves, table=table, name=name, variants=variants)
        pictures[f"curve-{name}.png"] = draw_png(draw_these, 4.2, 8.5)
    return pictures


def families(table: Table) -> dict[str, list[str]]:
    """The curves that belong into one picture: `accuracy` with `accuracy_characters`."""
    found: dict[str, list[str]] = {}
    for name in sorted(table.curves, key=len):
        family = next((known for known in found if name.startswith(f"{known}_")), name)
        found.setdefault(family, []).append(name)
    return found


def _curves(axes: Any, table: Table, name: str, variants: Sequence[str]) -> None:  # noqa: ANN401
    """Lines over numbers that are evenly spaced, whatever they are: `all` is the last."""
    places = list(table.curves[variants[0]])
    for variant, style in zip(variants, STYLES, strict=False):
        for system in table.systems:
            points = [
                (places.index(x), found[system])
                for x, found in table.curves[variant].items()
                if x in places and system in found and not math.isnan(found[system].mean)
            ]
            if variant != name and _same(table, system, name, variant):
                continue
            told = f" ({variant.removeprefix(name).strip('_')})" if variant != name else ""
            _line(axes, table, system, points, style=style, label=f"{system}{told}")
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel("how many")
    axes.set_ylabel(name.replace("_", " "))
    axes.set_ylim(0, 1.08)
    axes.grid(axis="y", color="#e3e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")


def _same(table: Table, system: str, name: str, variant: str) -> bool:
    """Whether a variant makes no difference to a system: one line shows both."""
    curve, other = table.curves[name], table.curves[variant]
    return all(
        other[x][system].mean == found[system].mean
        for x, found in curve.items()
        if x in other and system in found and system in other[x]
    )


def _line(
    axes: Any,  # noqa: ANN401
    table: Table,
    system: str,
    points: Sequence[tuple[int, Estimate]],
    *,
    style: str = "-",
    label: str = "",
) -> None:
    if not points:
        return
    colour = _colour(table, system)
    mark = MARKS[_place(table.systems, system) % len(MARKS)]
    axes.plot(
        [value for value, _ in points],
        [found.mean for _, found in points],
        color=colour,
        marker=mark,
        ms=5,
        label=label or system,
        lw=1.6,
        ls=style,
    )
    ends = [(value, found) for value, found in points if not math.isnan(found.low)]
    axes.fill_between(
        [value for value, _ in ends],
        [found.low for _, found in ends],
        [found.high for _, found in ends],
        color=colour,
        alpha=0.12,
        lw=0,
    )


def draw_png(draw: Callable[[Any], None], height: float, width: float = 7.5) -> bytes:
    """What a function draws on its axes, as a PNG. Raises SetupError without matplotlib."""
    try:
        import matplotlib  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise SetupError(
            "The package matplotlib is not installed.", hint=install_extra("eval")
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    style = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#9aa3ad",
        "axes.labelcolor": "#2b3138",
        "xtick.color": "#2b3138",
        "ytick.color": "#2b3138",
        "text.color": "#2b3138",
        "svg.hashsalt": "memserver",
    }
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(width, height))
        draw(axes)
        figure.tight_layout()
        written = BytesIO()
        # Without its version the same picture has the same bytes.
        figure.savefig(written, dpi=130, format="png", metadata={"Software": None})
        pyplot.close(figure)
    return written.getvalue()


def _height(table: Table) -> float:
    return 1.4 + 0.48 * len(table.systems)


def _bars(axes: Any, table: Table) -> None:  # noqa: ANN401 - matplotlib has no types
    names = list(table.systems)[::-1]
    for place, name in enumerate(names):
        found = table.overall[name].scores[table.main_score]
        if math.isnan(found.mean):
            continue
        axes.barh(place, found.mean, height=0.62, color=_colour(table, name))
        axes.errorbar(
            found.mean, place, xerr=_error(found), color="#20262d", capsize=3, lw=1.2, fmt="none"
        )
        end = found.mean if math.isnan(found.high) else found.high
        axes.annotate(
            f"{found.mean:.3f}",
            (max(end, found.mean), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"{table.main_score.replace('_', ' ')} (95 % interval)")
    _limit(axes.set_xlim, table)
    axes.grid(axis="x", color="#e3e7eb", lw=0.8)
    axes.set_axisbelow(True)


def _lines(axes: Any, table: Table, key: str) -> None:  # noqa: ANN401
    values = [value for value in table.groups[key] if isinstance(value, int)]
    for name in table.systems:
        points = [
            (value, table.groups[key][value][name].scores[table.main_score])
            for value in values
            if name in table.groups[key][value]
        ]
        points = [(value, found) for value, found in points if not math.isnan(found.mean)]
        _line(axes, table, name, points)
    if min(values) > 0 and max(values) / min(values) > WIDE:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(values, [str(value) for value in values])
    axes.set_xlabel(key.replace("_", " "))
    _finish(axes, table)


def _grouped_bars(axes: Any, table: Table, key: str) -> None:  # noqa: ANN401
    values = list(table.groups[key])
    width = 0.8 / len(table.systems)
    for index, name in enumerate(table.systems):
        for place, value in enumerate(values):
            summary: Mapping[str, Summary] = table.groups[key][value]
            if name not in summary:
                continue
            found = summary[name].scores[table.main_score]
            if math.isnan(found.mean):
                continue
            x = place - 0.4 + width * (index + 0.5)
            label = name if place == 0 else None
            axes.bar(x, found.mean, width=width * 0.92, color=_colour(table, name), label=label)
            axes.errorbar(
                x, found.mean, yerr=_error(found), color="#20262d", capsize=2, lw=1, fmt="none"
            )
    shown = [str(value) for value in values]
    tilted = sum(map(len, shown)) > 60
    axes.set_xticks(
        range(len(values)), shown, rotation=25 if tilted else 0, ha="right" if tilted else "center"
    )
    axes.tick_params(axis="x", length=0)
    _finish(axes, table)


def _finish(axes: Any, table: Table) -> None:  # noqa: ANN401
    axes.set_ylabel(table.main_score.replace("_", " "))
    _limit(axes.set_ylim, table)
    finish_bars(axes)


def finish_bars(axes: Any) -> None:  # noqa: ANN401
    """Lines to read the heights by, and a legend beside the picture."""
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", color="#e3e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")


def _limit(set_limits: Callable[[float, float], object], table: Table) -> None:
    """From 0 to 1, or to where the scores reach if they are others."""
    found = [each.scores[table.main_score] for each in table.overall.values()]
    ends = [value for each in found for value in (each.low, each.high, each.mean)]
    known = [value for value in ends if not math.isnan(value)] or [0.0]
    low, high = min(0.0, *known), max(1.0, *known)
    set_limits(low, high + 0.08 * (high - low))


def _error(found: Estimate) -> Sequence[Sequence[float]] | None:
    if math.isnan(found.low):
        return None
    return [[max(0.0, found.mean - found.low)], [max(0.0, found.high - found.mean)]]


def _colour(table: Table, name: str) -> str:
    return colour_of(name, table.systems)


def colour_of(name: str, systems: Sequence[str]) -> str:
    return COLOURS[_place(systems, name) % len(COLOURS)]


def _place(systems: Sequence[str], name: str) -> int:
    """A system has the same colour and mark in every picture."""
    if name in USUAL:
        return USUAL.index(name)
    others = [system for system in systems if system not in USUAL]
    return len(USUAL) + others.index(name)
