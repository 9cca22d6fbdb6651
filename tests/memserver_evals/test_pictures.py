"""Pictures: in one style, every axis named, no line hidden or drawn over what was not measured."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memserver.errors import InvalidInput
from memserver_evals.report import plots
from memserver_evals.report.overview import BEGIN, END, Group, as_markdown, put_into, read_groups
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


# --- several runs in one picture


def run_of(
    folder: Path, task: str, scores: dict[str, tuple[float, int]], model: str = "small"
) -> str:
    """A run that has ended: the mean of each system, and of how many examples."""
    folder.mkdir()
    means = {
        name: {"mean": mean, "low": max(0, mean - 0.1), "high": mean + 0.1, "count": count}
        for name, (mean, count) in scores.items()
    }
    windows = {name: 8192 if name == "full" else 2048 for name in scores}
    run = {"task": task, "model": {"name": model}, "task_options": {}, "windows": windows}
    systems = {name: {"scores": {"accuracy": found}} for name, found in means.items()}
    content = {"run": run, "main_score": "accuracy", "systems": systems}
    (folder / "results.json").write_text(json.dumps(content), encoding="utf-8")
    return str(folder)


def many(folder: Path) -> list[Group]:
    """Eight tasks, each with the same seven systems in another order, of two runs."""
    systems = ["retrieval", "memserver", "copying", "full", "window", "summary", "mine"]
    runs = []
    for number in range(8):
        turned = [*systems[number % 7 :], *systems[: number % 7]]
        scores = {name: (0.1 * place, 40) for place, name in enumerate(turned)}
        for part, names in enumerate((turned[:3], turned[3:])):
            own = {name: scores[name] for name in names}
            runs.append(run_of(folder / f"{number}-{part}", f"task-{number}", own))
    return read_groups(runs)


def test_a_system_has_the_same_colour_and_place_in_every_task_and_rows_are_as_wide_as_a_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(plots, "as_png", lambda figure: figure)
    figure: Any = plots.draw_groups(many(tmp_path))
    bars = [[bar for each in axes.containers[1::2] for bar in each] for axes in figure.axes]
    assert [len(row) for row in bars] == [21, 21, 14]
    colours = [bar.get_facecolor() for row in bars for bar in row]
    assert colours == colours[:7] * 8
    assert len(set(colours)) == 7
    assert figure.get_figwidth() < 10
    assert len({axes.get_xlim() for axes in figure.axes}) == 1, "bars are equally wide"
    assert {axes.get_ylabel() for axes in figure.axes} == {"score (95 % interval)"}
    [legend] = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["memserver", "full", "window", "summary", "retrieval", "copying", "mine"]


def test_runs_of_one_task_are_one_column_and_what_differs_stands_in_its_title_or_cell(
    tmp_path: Path,
) -> None:
    runs = [
        run_of(tmp_path / "a", "kv", {"retrieval": (0.5, 40), "full": (0.25, 40)}),
        run_of(tmp_path / "b", "kv", {"memserver": (0.75, 20)}),
        run_of(tmp_path / "c", "kv", {"memserver": (0.5, 40)}, model="large"),
        run_of(tmp_path / "d", "kv", {"memserver": (0.25, 40)}),
    ]
    table = as_markdown(read_groups([*runs[:3], f"{runs[3]}:memserver"])).splitlines()
    assert (
        table[0]
        == "| system | kv, accuracy, small, a | kv, accuracy, large | kv, accuracy, small, d |"
    )
    assert table[2:5] == [
        "| `memserver` | .750 [.65, .85], n 20 | .500 [.40, .60] | .250 [.15, .35] |",
        "| `full` | .250 [.15, .35] |  |  |",
        "| `retrieval` | .500 [.40, .60] |  |  |",
    ]
    assert table[6] == (
        "- kv, accuracy, small, a: n 40, window 2,048, `full` 8,192, model small, temperature 0"
    )


def test_picture_and_table_take_the_place_of_older_ones_in_a_page(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(f"# Results\n\n{BEGIN}\nold\n{END}\n\nWords.\n", encoding="utf-8")
    groups = read_groups([run_of(tmp_path / "a", "kv", {"full": (0.5, 4)})])
    for _ in range(2):
        put_into(page, tmp_path / "scores.png", groups)
        shown = page.read_text(encoding="utf-8")
        assert shown.startswith(f"# Results\n\n{BEGIN}\n![")
        assert "](../scores.png)\n\n| system | kv, accuracy |\n" in shown
        assert shown.endswith(f"temperature 0\n{END}\n\nWords.\n")
        assert "old" not in shown
    page.write_text("# Results\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="no place for scores"):
        put_into(page, tmp_path / "scores.png", groups)
