"""Policies over temperatures: a table of each at its best one, and a picture."""

from collections.abc import Sequence
from typing import Any

from memserver_evals.report.markdown import table as markdown
from memserver_evals.report.style import COLOURS, as_png, make_figure
from sweet_rl.runs.grid_results import GridResults, Point

_STYLES = ("-", "--", ":", "-.")
_HEAD = (
    *("policy", "seeds", "spare turns", "temperature", "success, validation", "success, test"),
    "its t-interval over seeds",
)
_DIFFERENCES = ("difference", "spare turns", "success, test", "its t-interval over seeds")


def grid_text(results: GridResults) -> str:
    rows = [
        (
            *(each.policy, str(each.seeds), str(each.spare_turns), f"{each.best.temperature:g}"),
            *(f"{each.best.validation:.3f}", each.best.test.shown()),
            each.best.by_seed.interval() or "-",
        )
        for each in results.rows
    ]
    differences = [
        (
            *(f"{each.b} - {each.a}", str(spare), each.estimate.shown(sign=True)),
            each.by_seed.interval(sign=True) or "-",
        )
        for spare, found in results.differences.items()
        for each in found
    ]
    parts = [
        f"## Each policy at its own best temperature\n\nChosen on {results.tasks} validation tasks; "
        f"scores on as many test tasks.",
        markdown(_HEAD, rows),
        *([markdown(_DIFFERENCES, differences)] if differences else []),
    ]
    return "\n\n".join(parts)


def draw_grid(results: GridResults) -> bytes:
    """A PNG: success on test tasks by temperature, a line for each policy, a place for each number of spare turns."""
    curves = results.curves
    figure = make_figure(figsize=(3.8 * len(curves) + 1.8, 4), layout="constrained")
    places = figure.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    for place, (spare, policies) in zip(places, curves.items(), strict=True):
        for number, (policy, points) in enumerate(policies.items()):
            _line(place, number, policy, points)
        place.set(xlabel="temperature", ylim=(0, 1.02), title=f"spare turns: {spare}")
        place.grid()
    places[0].set_ylabel("success on test tasks")
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside right center")
    return as_png(figure)


def _line(place: Any, number: int, policy: str, points: Sequence[Point]) -> None:  # noqa: ANN401 - matplotlib
    again, colour = divmod(number, len(COLOURS))
    style = {"color": COLOURS[colour], "ls": _STYLES[again % len(_STYLES)]}
    where = [each.temperature for each in points]
    place.plot(where, [each.test.mean for each in points], marker="o", ms=3, label=policy, **style)
    place.fill_between(
        where,
        [each.test.low for each in points],
        [each.test.high for each in points],
        color=COLOURS[colour],
        alpha=0.08,
        lw=0,
    )
