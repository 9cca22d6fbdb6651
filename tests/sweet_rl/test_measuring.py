"""Policies kept from elsewhere, over temperatures; and what candidates are worth when they are played to their end."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from memserver.errors import Conflict
from sweet_rl import task_sets
from sweet_rl.pairs import is_held_out
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.report import write_report
from sweet_rl.runs.results import gather
from sweet_rl.runs.run import Selection
from sweet_rl.runs.units import Unit
from sweet_rl.runs.values import HALVES, Continued, Scores, rank_correlation
from sweet_rl.trajectories import Candidates, read_file
from tests.sweet_rl.small_run import Trainings, Trusting, bench, run, small


def test_rounds_that_only_some_policies_have_played_are_left_out(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_sets, "Sandbox", Trusting)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "adapter_model.safetensors").write_bytes(b"weights")
    recipe = small(tmp_path, kept=f"{{ours: {kept}, theirs: {kept}}}")
    tools = bench(tmp_path, recipe)
    rounds = ("shared/grid.ours.1", "shared/grid.theirs.1", "shared/grid.ours.2")
    run(tools, Selection(only=rounds))
    results = gather(recipe, tools.out).grid
    assert results is not None
    assert results.tasks == 2
    assert {row.policy for row in results.rows} == {"ours", "theirs"}
    (kept / "adapter_model.safetensors").write_bytes(b"others")
    with pytest.raises(Conflict, match="weights was"):
        run(tools, Selection(only=rounds))


def test_candidates_are_played_to_their_end_and_who_orders_them_so_is_measured(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_sets, "Sandbox", Trusting)
    said_by_mdpo: list[Candidates] = []

    def implicit(unit: Unit, context: RunContext, states: Sequence[Candidates]) -> Scores:
        said_by_mdpo.extend(states)
        return {state.key: [-len(text) for text in state.candidates] for state in states}

    monkeypatch.setattr("sweet_rl.runs.values.implicit_reward", implicit)
    changes = {"critic.held_out": "0.4", "seeds": "[1]", "grid": "null", "variants": "{}"}
    recipe = small(tmp_path, values="{states: 6, candidates: 3, samples: 4}", **changes)
    tools = bench(tmp_path, recipe)
    run(tools, Selection(stages=("warm-start", "collect", "mdpo", "candidates", "rank", "actor")))
    _, told = run(tools, Selection(stages=("values",)))
    figures = told["seed-1/values"]
    assert (figures["states"], len(said_by_mdpo)) == (6, 6)
    assert {len(each.candidates) for each in said_by_mdpo} == {3}
    drawn = read_file(tools.out / "seed-1/candidates/candidates.jsonl", Candidates)
    unlearnt = {each.key for each in drawn if is_held_out(each.task, 0.4)}
    assert 0 < figures["held_out"] == min(6, len(unlearnt)), "these come first"
    plays = read_file(tools.out / "seed-1/values/continued.jsonl", Continued)
    assert figures["plays"] == len(plays)
    answers = {
        (each.task, each.sample, each.turn, place)
        for each in said_by_mdpo
        for place, text in enumerate(each.candidates)
        if "I WANT TO ANSWER" in text
    }
    counts = Counter((each.task, each.sample, each.turn, each.candidate) for each in plays)
    assert all(number == (1 if key in answers else 4) for key, number in counts.items())
    found = figures["rank_correlation"]
    assert found["oracle"]["mean"] > 0.5
    assert found[HALVES]["count"] > 0
    text = write_report(gather(recipe, tools.out), tools.out / "report").read_text("utf-8")
    assert "| seed-1/values | oracle | " in text


def test_a_rank_correlation_is_of_states_whose_candidates_differ() -> None:
    worth = {("a", 0, 0): [0, 0.5, 1], ("b", 0, 0): [0, 0, 0], ("c", 0, 0): [1, 0, 0]}
    scores = {("a", 0, 0): [1, 2, 9], ("b", 0, 0): [1, 2, 3], ("c", 0, 0): [5, 5, 5]}
    found = rank_correlation(worth, scores)
    assert (found["mean"], found["count"]) == (0.5, 2), "1 in a, 0 in c, nothing in b"
