"""Pictures: in one style, every axis named, no line hidden or drawn over what was not measured."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest

from memserver_evals.report import plots
from memserver_evals.runs.results import Row, tabulate


@dataclass
class Example:
    id: str
    level: int


class Levels:
    """As much of a task as tables need."""

    main_score = "accuracy"
    group_keys = ("level", "kind")

    def examples(self) -> list[Example]:
        return [Example(str(number), number % 5) for number in range(20)]

    def groups(self, example: Example) -> dict[str, str | int]:
        return {"level": example.level, "kind": f"kind {example.level % 2}"}


def drawn(monkeypatch: pytest.MonkeyPatch, levels: Collection[int]) -> dict[str, Any]:
    """The axes of each picture of a run whose sample has these levels, and two systems that answer alike."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(plots, "as_png", lambda figure: figure)
    task = Levels()
    scores = {"accuracy": 1.0, "accuracy@5": 0.0, "accuracy@10": 1.0}
    rows = [
        Row(system, each.id, task.groups(each), each.id, scores, 1.0, "a", 1, 1)
        for system in ("memserver", "full")
        for each in task.examples()
        if each.level in levels
    ]
    table = tabulate(task, rows)  # type: ignore[arg-type]
    return {name: figure.axes[0] for name, figure in plots.draw_all(table).items()}


def test_every_axis_has_a_name_and_the_legend_stands_beside_the_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures = drawn(monkeypatch, range(5))
    assert {name: (axes.get_xlabel(), axes.get_ylabel()) for name, axes in pictures.items()} == {
        "scores.png": ("accuracy (95 % interval)", ""),  # the systems' names are the axis
        "by-level.png": ("level", "accuracy (95 % interval)"),
        "by-kind.png": ("kind", "accuracy (95 % interval)"),
        "curve-accuracy.png": ("number of documents or results", "accuracy (95 % interval)"),
    }
    for axes in pictures.values():
        assert not axes.spines["top"].get_visible()
        if (legend := axes.get_legend()) is not None:
            assert legend.get_bbox_to_anchor().x0 > axes.bbox.x1


def test_two_systems_that_answer_alike_are_both_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = drawn(monkeypatch, range(5))["by-level.png"].get_lines()
    assert list(first.get_ydata()) == list(second.get_ydata())
    assert all(a < b for a, b in zip(first.get_xdata(), second.get_xdata(), strict=True))
    assert first.get_linewidth() > second.get_linewidth()


def test_no_line_runs_over_values_that_the_sample_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    axes = drawn(monkeypatch, (0, 1, 4))["by-level.png"]
    assert [len(line.get_xdata()) for line in axes.get_lines()] == [2, 1, 2, 1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "3", "4"]
    assert len(axes.get_legend().get_texts()) == 2
