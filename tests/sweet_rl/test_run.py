"""Runs of a small recipe: every stage, resumed, refused and reported. The policies' words are scripted."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from memserver.errors import Conflict, InvalidInput
from memserver.messages import JsonObject
from sweet_rl import task_sets
from sweet_rl.launching import Plan
from sweet_rl.plans import PreferencePlan
from sweet_rl.recipe import Recipe
from sweet_rl.resumable import Deadline, OutOfTime
from sweet_rl.runs import train_stages
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.report import write_report
from sweet_rl.runs.results import gather, write_results
from sweet_rl.runs.run import Selection
from sweet_rl.runs.run_state import RunState, note_call
from sweet_rl.runs.units import STAGES, Unit, units_of
from sweet_rl.trajectories import Candidates, Messages, Pair, Ranked, Trajectory, read_file
from tests.sweet_rl.scripted_sampler import ScriptedSource
from tests.sweet_rl.small_run import Trainings, Trusting, bench, run, small, words


@dataclass
class Whole:
    """A run of the whole recipe."""

    tools: RunContext
    done: list[str]
    told: dict[str, JsonObject]
    plans: list[Plan]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp("whole")
    found = Trainings([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_stages, "trained", found.train)
        patch.setattr(task_sets, "Sandbox", Trusting)
        tools = bench(folder, small(folder))
        yield Whole(tools, *run(tools), found.plans)


def find(recipe: Recipe, path: str) -> Unit:
    return next(unit for unit in units_of(recipe) if unit.path == path)


def test_every_stage_runs_once_and_leaves_what_the_next_ones_need(whole: Whole) -> None:
    tools, told = whole.tools, whole.told
    units = units_of(tools.recipe)
    elsewhere = {"critic", "values", "evaluate-unseen", "gate-states", "gate-scores"}
    assert {unit.stage for unit in units} == set(STAGES) - elsewhere
    assert whole.done == [unit.path for unit in units]
    assert run(tools)[0] == [], "nothing is done twice"

    out = tools.out
    collected = read_file(out / "shared/collect/trajectories.jsonl", Trajectory)
    assert [each.key for each in collected[:9:8]] == [
        (collected[0].task, 0),
        (collected[0].task, 1),
    ]
    assert told["shared/collect"]["trajectories"] == 24
    learnt = read_file(out / "seed-1/rft/learnt.jsonl", Trajectory)
    assert learnt == [each for each in collected if each.reward == 1]
    for pair in read_file(out / "seed-1/mdpo/pairs.jsonl", Pair):
        assert (
            pair.prompt == next(each for each in collected if each.task == pair.task).messages[:2]
        )

    drawn = read_file(out / "seed-1/candidates/candidates.jsonl", Candidates)
    states = [
        (each.task, each.sample, turn) for each in collected[:5] for turn in range(each.turns)
    ]
    assert [each.key for each in drawn] == states
    other = read_file(out / "seed-2/candidates/candidates.jsonl", Candidates)
    assert [each.candidates for each in other] != [each.candidates for each in drawn]
    for each in read_file(out / "seed-1/rank/ranked.jsonl", Ranked):
        assert each.advantages == each.oracle
    assert told["seed-1/rank"]["agreement"] == 1
    assert told["seed-1/actor.wide"]["pairs"] > 0
    judged = told["seed-1/actor.wide"]["by_oracle"]
    assert judged == {"right": 1, "equal": 0, "inverted": 0}, "the oracle ranked them itself"

    by_folder = {plan.out.relative_to(out).as_posix(): plan for plan in whole.plans}
    mdpo = by_folder["seed-2/mdpo"]
    assert isinstance(mdpo, PreferencePlan)
    assert mdpo.adapter == out / "shared/warm-start/adapter"
    assert (mdpo.schedule.seed, mdpo.base) == (2, tools.base)
    assert not list(out.glob("*/*/checkpoints")), "they are large, and no longer needed"


def test_scripted_plays_are_kept_where_a_run_was_killed_after_them(whole: Whole) -> None:
    folder = whole.tools.out / "shared" / "collect"
    before = (folder / "trajectories.jsonl").stat().st_mtime_ns
    (folder / "done.json").unlink()
    assert run(whole.tools)[0] == ["shared/collect"]
    assert (folder / "trajectories.jsonl").stat().st_mtime_ns == before


def test_policies_play_the_same_tasks_with_the_same_chance(whole: Whole) -> None:
    tools = whole.tools
    for file in ("sampled.jsonl", "greedy.jsonl"):
        plays = [
            read_file(tools.out / f"seed-1/evaluate.{name}" / file, Trajectory)
            for name in ("rft", "mdpo", "sweet", "wide")
        ]
        assert all(each == plays[0] for each in plays)
    single = read_file(tools.out / "shared/evaluate.single/sampled.jsonl", Trajectory)
    assert {each.turns for each in single} == {1}


def test_a_report_has_every_policy_with_its_interval_and_the_paired_differences(
    whole: Whole,
) -> None:
    tools = whole.tools
    results = gather(tools.recipe, tools.out)
    write_results(results, tools.out / "report")
    found = json.loads((tools.out / "report/results.json").read_text(encoding="utf-8"))
    tables = {(table["split"], table["mode"]): table for table in found["tables"]}
    assert tables.keys() == {
        (split, mode) for split in ("test", "validation") for mode in ("sampled", "greedy")
    }
    table = tables["test", "sampled"]
    rows = {row["policy"]: row for row in table["rows"]}
    assert list(rows) == [
        *(
            "zero-shot",
            "single",
            "warm-start",
            "rft",
            "mdpo",
            "sweet",
            "rft-matched",
            "wide",
            "bold",
        )
    ]
    assert (rows["sweet"]["seeds"], rows["wide"]["seeds"], rows["zero-shot"]["seeds"]) == (2, 1, 1)
    plays = [
        read_file(tools.out / f"seed-{seed}/evaluate.sweet/sampled.jsonl", Trajectory)
        for seed in (1, 2)
    ]
    success = [each.reward == 1 for seed in plays for each in seed]
    assert rows["sweet"]["scores"]["success"]["mean"] == pytest.approx(sum(success) / 6)
    pairs = {(each["a"], each["b"]) for each in table["differences"]}
    assert {("mdpo", "sweet"), ("sweet", "wide"), ("rft-matched", "sweet")} <= pairs
    assert all(
        each["estimate"]["mean"] == 0
        for each in table["differences"]
        if {each["a"], each["b"]} <= {"mdpo", "sweet", "rft", "wide", "bold"}
    ), "they said the same"
    text = write_report(results, tools.out / "report").read_text(encoding="utf-8")
    assert "| sweet - mdpo | success | +0.000" in text
    assert "| bold - mdpo | success | +0.000" in text
    assert re.search(
        r"sweet - mdpo \| success \| \+0.000 \[.*\] \| \[\+0.000, \+0.000\] \|", text
    ), "by seeds"
    assert rows["sweet"]["scores"]["success_by_operator"] == rows["sweet"]["scores"]["success"]
    assert "agreement with the oracle | 1.000" in text
    assert "How collaborations end" in text
    assert "Each policy at its own best temperature" in text
    assert "Chosen on 4 validation tasks" in text
    assert "its pairs by the oracle | right 1.000" in text
    for picture in ("scores.png", "curves.png", "temperatures.png"):
        assert (tools.out / "report" / picture).stat().st_size > 10_000


def test_each_policy_is_compared_at_its_own_best_temperature_on_validation(whole: Whole) -> None:
    tools = whole.tools
    files = {path.name for path in (tools.out / "seed-1/grid.sweet.2").glob("*.jsonl")}
    assert len(files) == 8, "two splits, two numbers of spare turns, two temperatures"
    assert {"validation-spare-1-at-0.jsonl", "test-spare-3-at-1.jsonl"} <= files
    results = gather(tools.recipe, tools.out).grid
    assert results is not None
    assert results.tasks == 4, "two rounds of two"
    rows = {(row.policy, row.spare_turns): row for row in results.rows}
    assert ("zero-shot", 1) not in rows, "the base itself isn't played"
    assert (rows["sweet", 1].seeds, rows["wide", 3].seeds) == (2, 1)
    for (policy, spare), row in rows.items():
        points = results.curves[spare][policy]
        assert row.best.validation == max(point.validation for point in points)
    plays = [
        play
        for seed in (1, 2)
        for number in (1, 2)
        for play in read_file(
            tools.out / f"seed-{seed}/grid.sweet.{number}/test-spare-1-at-1.jsonl", Trajectory
        )
    ]
    assert len({play.task for play in plays}) == 4
    drawn = next(each for each in results.curves[1]["sweet"] if each.temperature == 1)
    assert drawn.test.mean == sum(play.reward == 1 for play in plays) / len(plays)
    assert {(each.a, each.b) for each in results.differences[3]} >= {("mdpo", "sweet")}


def test_what_is_done_of_a_run_can_be_reported_and_the_rest_is_named(
    tmp_path: Path, trainings: Trainings
) -> None:
    recipe = small(tmp_path)
    tools = bench(tmp_path, recipe)
    with pytest.raises(InvalidInput, match="nothing done"):
        gather(recipe, tools.out)
    run(tools, Selection(stages=("validate",), parts=("zero-shot",)))
    results = gather(recipe, tools.out)
    assert [row.policy for table in results.tables for row in table.rows] == ["zero-shot"] * 2
    assert "seed-2/actor" in results.missing
    assert "Not done: " in write_report(results, tools.out / "report").read_text(encoding="utf-8")


def test_a_stage_whose_needs_are_not_done_says_which(tmp_path: Path, trainings: Trainings) -> None:
    tools = bench(tmp_path, small(tmp_path))
    with pytest.raises(InvalidInput, match="needs shared/collect") as caught:
        run(tools, Selection(stages=("rft",)))
    assert "memserver train collect" in caught.value.hint
    with pytest.raises(InvalidInput, match="Nothing"):
        run(tools, Selection(stages=("critic",)))


def test_other_settings_are_refused_by_name_unless_it_is_to_be_done_anew(
    tmp_path: Path, trainings: Trainings
) -> None:
    run(
        bench(tmp_path, small(tmp_path)),
        Selection(seeds=(1,), stages=("warm-start", "collect", "mdpo")),
    )
    changed = bench(tmp_path, small(tmp_path, **{"mdpo.beta": "0.5"}))
    with pytest.raises(Conflict, match=r"beta was 0\.1, now 0\.5"):
        run(changed, Selection(stages=("mdpo",)))
    done, _ = run(changed, Selection(stages=("mdpo",), seeds=(1,)), redo=True)
    assert done == ["seed-1/mdpo"]
    [kept] = (changed.out / "replaced").iterdir()
    assert (kept / "done.json").exists(), "what was done before is put aside"
    upstream = bench(tmp_path, small(tmp_path, **{"collect.samples": "2"}))
    with pytest.raises(Conflict, match="collect was done with other settings"):
        run(upstream, Selection(stages=("rft",)))


def test_a_run_that_ran_out_of_time_keeps_what_it_has_and_goes_on(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(tmp_path, **{"sampling.at_once": "1"})
    tools = bench(tmp_path, recipe)
    asked: list[str] = []

    def passed(self: Deadline) -> bool:
        return len(asked) >= 3

    def counted(messages: Messages, seed: int) -> str:
        if len(messages) == 2:
            asked.append(messages[1]["content"])
        return words(messages, seed)

    tools = replace(tools, source=ScriptedSource(counted))
    wanted = Selection(stages=("evaluate",), parts=("zero-shot",))
    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "passed", property(passed))
        with pytest.raises(OutOfTime):
            run(tools, wanted)
    assert len(asked) == 3
    done, told = run(tools, wanted)
    assert len(asked) == 6, "three were played when the time was over, and three are greedy"
    assert told["shared/evaluate.zero-shot"]["sampled"]["trajectories"] == 3
    assert done == ["shared/evaluate.zero-shot"]
    whole = bench(tmp_path / "whole", recipe)
    run(whole, wanted)
    for file in ("sampled.jsonl", "greedy.jsonl"):
        path = Path("shared/evaluate.zero-shot") / file
        assert (whole.out / path).read_bytes() == (tools.out / path).read_bytes()


def test_a_training_that_is_out_of_time_is_not_done(tmp_path: Path, trainings: Trainings) -> None:
    tools = bench(tmp_path, small(tmp_path))
    trainings.out_of_time = True
    with pytest.raises(OutOfTime):
        run(tools, Selection(stages=("warm-start",)))
    unit = find(tools.recipe, "shared/warm-start")
    assert RunState(tools.out).figures(unit) is None
    assert (unit.folder(tools.out) / "checkpoints").is_dir()
    trainings.out_of_time = False
    assert run(tools, Selection(stages=("warm-start",)))[0] == ["shared/warm-start"]
    first, second = trainings.plans
    assert first.out == second.out


def test_two_processes_do_not_work_on_one_unit(tmp_path: Path, trainings: Trainings) -> None:
    tools = bench(tmp_path, small(tmp_path))
    with (
        RunState(tools.out).working_on(find(tools.recipe, "shared/warm-start")),
        pytest.raises(Conflict, match="Another process"),
    ):
        run(tools, Selection(stages=("warm-start",)))


def test_processes_that_begin_together_all_write_down_what_they_run(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        for done in [
            threads.submit(note_call, tmp_path / "run", {"name": "one"}, f"stage {number}")
            for number in range(40)
        ]:
            done.result()
    lines = (tmp_path / "run" / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["stage"] for line in lines} == {f"stage {each}" for each in range(40)}
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["recipe"]


def test_half_a_line_that_a_kill_left_is_played_again(tmp_path: Path, trainings: Trainings) -> None:
    tools = bench(tmp_path, small(tmp_path))
    unit = find(tools.recipe, "shared/evaluate.zero-shot")
    folder = unit.folder(tools.out)
    wanted = Selection(stages=("evaluate",), parts=("zero-shot",))
    run(tools, wanted)
    before = (folder / "sampled.jsonl").read_bytes()
    lines = before.splitlines(keepends=True)
    (folder / "sampled.jsonl").unlink()
    (folder / "done.json").unlink()
    (folder / "sampled.part.jsonl").write_bytes(lines[1] + lines[0][:40])
    run(tools, wanted)
    assert (folder / "sampled.jsonl").read_bytes() == before


def test_nothing_to_learn_is_an_error_with_a_way_out(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(messages: Messages, seed: int) -> str:
        return "I WANT TO ANSWER: nothing"

    recipe = small(tmp_path, **{"collect.by": "policy"})
    tools = replace(bench(tmp_path, recipe), source=ScriptedSource(silent))
    run(tools, Selection(stages=("warm-start", "collect")))
    for stage in ("rft", "mdpo"):
        with pytest.raises(InvalidInput, match="nothing to") as caught:
            run(tools, Selection(stages=(stage,)))  # type: ignore[arg-type]
        assert caught.value.hint
