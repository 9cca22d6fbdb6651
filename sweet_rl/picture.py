"""A collaboration as a picture: each message, and beside each of the agent's what it was worth."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from textwrap import wrap
from typing import Any

from memserver.errors import SetupError, install_extra
from memserver_evals.report.plots import COLOURS
from sweet_rl.trajectories import Trajectory

WIDTH, LINES = 66, 14
"""Characters in a line of text, and lines of a message; what is longer is cut."""
_LINE, _GAP, _BAR = 0.17, 0.2, 0.24
"""Inches of a line, around a message, and of a bar."""
_SHADES = {"user": "#f1f3f6", "assistant": "#e1ebf8"}
_NAMES = {"user": "human", "assistant": "agent"}


def make_figure(**options: Any) -> Any:  # noqa: ANN401 - matplotlib has no types
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError("Pictures need matplotlib.", hint=install_extra("train")) from error
    return Figure(**options)


def as_png(figure: Any) -> bytes:  # noqa: ANN401
    content = BytesIO()
    figure.savefig(content, dpi=130, format="png", metadata={"Software": None})
    return content.getvalue()


def draw(played: Trajectory, scores: Mapping[str, Sequence[float]]) -> bytes:
    """A PNG of a collaboration with what each turn of the agent was worth, by one or several names."""
    if any(len(values) != played.turns for values in scores.values()):
        raise ValueError(f"{played.turns} turns, and another number of scores.")
    talk = [(message["role"], _lines(message["content"])) for message in played.messages[1:]]
    least = {"user": 0.0, "assistant": len(scores) * _BAR}
    heights = [max(len(lines) * _LINE, least[role]) + _GAP for role, lines in talk]
    picture = make_figure(figsize=(9.5, sum(heights) + 1), layout="constrained")
    texts, bars = picture.subplots(1, 2, width_ratios=(2.3, 1), sharey=True)
    place = 0.0
    for index, ((role, lines), height) in enumerate(zip(talk, heights, strict=True)):
        _write(texts, role, lines, place, height)
        if role == "assistant":
            values = [(found[index // 2], _largest(found)) for found in scores.values()]
            _bars(bars, values, place + height / 2)
        place += height
    texts.set(xlim=(0, 1), ylim=(place, 0))
    texts.axis("off")
    _finish(bars, scores)
    picture.suptitle(_title(played), fontsize=10)
    return as_png(picture)


def _lines(text: str) -> list[str]:
    lines = [
        part
        for line in text.strip().splitlines() or [""]
        for part in wrap(line, WIDTH, replace_whitespace=False, drop_whitespace=False) or [""]
    ]
    return lines if len(lines) <= LINES else [*lines[: LINES - 1], "…"]


def _write(axes: Any, role: str, lines: Sequence[str], place: float, height: float) -> None:  # noqa: ANN401
    axes.axhspan(place + 0.04, place + height - 0.04, color=_SHADES[role], linewidth=0)
    axes.text(
        0.985, place + 0.07, _NAMES[role], ha="right", va="top", color="#8a94a3", fontsize=6.5
    )
    shown = "\n".join(lines).replace("$", r"\$")  # no formula begins here
    axes.text(
        0.015,
        place + height / 2,
        shown,
        va="center",
        family="monospace",
        fontsize=7.5,
        linespacing=1.25,
    )


def _largest(values: Sequence[float]) -> float:
    return max(map(abs, values)) or 1.0


def _bars(axes: Any, values: Sequence[tuple[float, float]], middle: float) -> None:  # noqa: ANN401
    """Each score as a share of the largest of its name: they have scales of their own."""
    top = middle - len(values) * _BAR / 2
    for number, (value, largest) in enumerate(values):
        place = top + (number + 0.5) * _BAR
        drawn = axes.barh(place, value / largest, _BAR * 0.8, color=COLOURS[number])
        axes.bar_label(drawn, [f"{value:+.3g}"], padding=3, fontsize=7.5)


def _finish(axes: Any, scores: Mapping[str, Sequence[float]]) -> None:  # noqa: ANN401
    axes.axvline(0, color="#5f6b7a", linewidth=0.8)
    axes.set_xlim(-1.45, 1.45)
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlabel("what each message was worth", fontsize=8)
    if len(scores) > 1:
        from matplotlib.patches import Patch  # noqa: PLC0415 - an extra

        shown = [
            Patch(color=colour, label=name) for name, colour in zip(scores, COLOURS, strict=False)
        ]
        axes.legend(handles=shown, fontsize=7.5, loc="upper right", frameon=False)


def _title(played: Trajectory) -> str:
    tests = f", {sum(played.passed)} of {len(played.passed)} tests" if played.passed else ""
    return f"{played.task}: reward {played.reward:g}{tests}"
