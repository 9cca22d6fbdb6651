"""Trainings as a stage calls them: they learn, stop in time, go on where they stopped, and leave an adapter."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from trl import DPOTrainer

from memserver.errors import Conflict, InvalidInput
from sweet_rl.agent_turns import cleaned
from sweet_rl.pairs import successes, trajectory_pairs, with_hidden
from sweet_rl.plans import EpochSchedule, PreferencePlan, ScorePlan, SftPlan
from sweet_rl.sampling.samplers import Sampling
from sweet_rl.trajectories import Pair, Trajectory, read_file, write_file
from tests.support.lazy import lazy
from tests.sweet_rl.conversations import some_trajectories
from tests.sweet_rl.small_run import bench, small

adapters = lazy("sweet_rl.adapters")
scoring = lazy("sweet_rl.scores")
trains_preferences = lazy("sweet_rl.training")
regression_head = lazy("sweet_rl.losses")
safetensors_torch = lazy("safetensors.torch")
trains_sft = lazy("sweet_rl.training")
torch = lazy("torch")
training_run = lazy("sweet_rl.training_run")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
SHORT = EpochSchedule(steps=3, batch=4, rate=1e-2, save_every=2)
Train = Callable[[EpochSchedule, str], dict[str, Any]]


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    sent: list[object] = []
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", lambda **told: sent.append(told))
    monkeypatch.delenv("CI", raising=False)
    yield
    assert not sent


def write_data(folder: Path) -> None:
    trajectories = some_trajectories(4)
    write_file(folder / "successes.jsonl", successes(trajectories))
    write_file(folder / "pairs.jsonl", trajectory_pairs(trajectories))


def sft(base: Path, folder: Path, schedule: EpochSchedule, out: str) -> dict[str, Any]:
    return trains_sft.train_sft(
        SftPlan(base, folder / "successes.jsonl", folder / out, schedule=schedule)
    )


def preferences(
    base: Path, folder: Path, schedule: EpochSchedule, out: str, **values: Any
) -> dict[str, Any]:
    return trains_preferences.train_preferences(
        PreferencePlan(base, folder / "pairs.jsonl", folder / out, schedule=schedule, **values)
    )


def regression(base: Path, folder: Path, schedule: EpochSchedule, out: str) -> dict[str, Any]:
    return preferences(base, folder, schedule, out, loss="regression", hidden=True)


def steps_in(file: Path) -> list[int]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line["step"] for line in lines if "loss" in line]


@pytest.mark.parametrize(
    "train",
    [
        preferences,
        pytest.param(sft, marks=pytest.mark.slow),
        pytest.param(regression, marks=pytest.mark.slow),
    ],
)
def test_a_training_that_was_stopped_after_each_step_ends_like_one_that_was_not(
    tiny_base: Path, tmp_path: Path, train: Callable[..., dict[str, Any]]
) -> None:
    write_data(tmp_path)
    whole = train(tiny_base, tmp_path, SHORT, "whole")
    assert (whole["finished"], whole["steps"], whole["of_steps"]) == (True, 3, 3)
    for step in (1, 2, 3):
        told = train(tiny_base, tmp_path, replace(SHORT, seconds=0), "stopped")
        assert (told["steps"], told["finished"]) == (step, step == 3)
        assert (tmp_path / "stopped" / "adapter").exists() == told["finished"]
    files = [adapters.WEIGHTS] + [regression_head.HEAD] * (train is regression)
    for name in files:
        one, other = (
            safetensors_torch.load_file(tmp_path / out / "adapter" / name)
            for out in ("whole", "stopped")
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
        assert any(value.abs().max() > 0 for key, value in one.items() if "lora_A" not in key)
    assert len(list((tmp_path / "stopped" / "checkpoints").glob("checkpoint-*"))) == 1


@pytest.mark.parametrize("train", [sft, preferences])
def test_what_is_learnt_is_not_pickled(
    tiny_base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    train: Callable[..., dict[str, Any]],
) -> None:
    def fails(_: object) -> str:
        raise TypeError("can't pickle a table")

    monkeypatch.setattr("datasets.arrow_dataset.generate_fingerprint", fails)
    write_data(tmp_path)
    assert train(tiny_base, tmp_path, replace(SHORT, steps=1), "out")["finished"]


def test_warm_starting_makes_what_was_said_likelier(tiny_base: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    seen: list[tuple[int, int]] = []
    plan = SftPlan(
        tiny_base, tmp_path / "successes.jsonl", tmp_path / "out", schedule=replace(SHORT, steps=12)
    )
    figures = trains_sft.train_sft(plan, lambda done, total: seen.append((done, total)))
    assert seen == [(step, 12) for step in range(13)]
    lines = [json.loads(line) for line in (plan.out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] - 0.5
    assert figures["loss"] == losses[-1]
    assert figures == json.loads((plan.out / "figures.json").read_text())
    assert figures["trajectories"] == 4
    assert 0 < figures["agent_tokens"] < figures["tokens"]
    assert list((plan.out / "tensorboard").iterdir())
    config = json.loads((plan.out / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == tiny_base.name, "no path of this machine"
    weights = safetensors_torch.load_file(plan.out / "adapter" / adapters.WEIGHTS)
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}


def test_preferences_are_learnt_and_measured_on_pairs_that_were_held_out(
    tiny_base: Path, tmp_path: Path
) -> None:
    write_data(tmp_path)
    write_file(tmp_path / "held_out.jsonl", trajectory_pairs(some_trajectories(6))[8:])
    figures = preferences(
        tiny_base,
        tmp_path,
        replace(SHORT, steps=10, micro_batch=2),
        "out",
        beta=1.0,
        loss="turn_mean",
        hidden=True,
        held_out=tmp_path / "held_out.jsonl",
    )
    assert figures["pairs"] == 8
    assert figures["held_out_pairs"] == 4
    assert figures["held_out_accuracy"] == 1
    assert figures["held_out_margin"] > 0.1
    assert figures["held_out_loss"] < 0.69


def test_pairs_have_the_tokens_that_trl_gives_them(tiny_base: Path, tmp_path: Path) -> None:
    pairs = trajectory_pairs(some_trajectories(5), every_success=True)
    plan = PreferencePlan(tiny_base, tmp_path, tmp_path, hidden=True, schedule=SHORT)
    trainer = trains_preferences.make_trainer(plan, pairs)
    chats = [
        {
            "prompt": cleaned(with_hidden(pair.prompt, pair.hidden)),
            "chosen": cleaned(pair.chosen),
            "rejected": cleaned(pair.rejected),
        }
        for pair in pairs
    ]
    theirs = DPOTrainer._prepare_dataset(
        trainer, Dataset.from_list(chats), trainer.processing_class, trainer.args, "train"
    )
    for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
        assert list(trainer.train_dataset[name]) == list(theirs[name])


def test_pairs_are_learnt_in_their_files_order_where_a_plan_says_so(
    tiny_base: Path, tmp_path: Path
) -> None:
    pairs = trajectory_pairs(some_trajectories(9))
    plan = PreferencePlan(
        tiny_base, tmp_path, tmp_path, schedule=replace(SHORT, batch=1), in_order=True
    )

    def learnt(plan: PreferencePlan) -> list[list[int]]:
        trainer = trains_preferences.make_trainer(plan, pairs)
        return [batch["input_ids"][0].tolist() for batch in trainer.get_train_dataloader()]

    in_order, drawn = learnt(plan), learnt(replace(plan, in_order=False))
    assert sorted(in_order) == sorted(drawn)
    assert in_order == learnt(plan) != drawn
    longest = max(
        range(len(pairs)), key=lambda one: len(str(pairs[one].chosen + pairs[one].rejected))
    )
    assert max(range(len(pairs)), key=lambda one: len(in_order[one])) == longest


def test_a_critic_ends_at_its_lowest_held_out_loss_also_when_it_was_interrupted(
    tiny_base: Path, tmp_path: Path
) -> None:
    write_data(tmp_path)
    unlike = [  # what it learns makes these ever more wrong
        pair.model_copy(update={"chosen": pair.rejected, "rejected": pair.chosen})
        for pair in trajectory_pairs(some_trajectories(6))[8:]
    ]
    write_file(tmp_path / "held_out.jsonl", unlike)
    schedule = replace(SHORT, steps=40, save_every=50)
    early = {"held_out": tmp_path / "held_out.jsonl", "patience": 1, "measure_every": 1}
    whole = preferences(tiny_base, tmp_path, schedule, "whole", beta=1.0, **early)
    assert whole["finished"]
    assert whole["steps"] == 2, "the first measurement was the best"
    assert whole["held_out_loss"] == pytest.approx(_lowest(tmp_path / "whole"))
    in_time = replace(schedule, seconds=0.0)
    calls = [
        preferences(tiny_base, tmp_path, in_time, "pieces", beta=1.0, **early) for _ in range(2)
    ]
    assert [(call["steps"], call["finished"]) for call in calls] == [(1, False), (2, True)]
    assert calls[-1]["held_out_loss"] == pytest.approx(whole["held_out_loss"], abs=1e-4)


def _lowest(folder: Path) -> float:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return min(line["eval_loss"] for line in map(json.loads, lines) if "eval_loss" in line)


def test_the_likelihood_alone_learns_nothing_from_what_was_rejected(
    tiny_base: Path, tmp_path: Path
) -> None:
    write_data(tmp_path)
    figures = preferences(tiny_base, tmp_path, SHORT, "out", loss="nll")
    lines = (tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [line for line in map(json.loads, lines) if "nll" in line]
    assert logged[0]["loss"] == pytest.approx(logged[0]["nll"], rel=1e-3)
    assert figures["finished"]


def test_all_weights_are_trained_against_what_the_model_was_and_their_critic_scores_so(
    tiny_base: Path, tmp_path: Path
) -> None:
    write_data(tmp_path)
    sft(tiny_base, tmp_path, SHORT, "begin")
    begin = tmp_path / "begin" / "adapter"
    schedule = replace(SHORT, steps=6, full=True)
    figures = preferences(
        tiny_base, tmp_path, schedule, "full", beta=1.0, adapter=begin, hidden=True
    )
    policy = tmp_path / "full" / "adapter"
    assert figures["loss"] < 0.6
    assert (policy / "model.safetensors").exists()
    assert not (policy / "adapter_model.safetensors").exists()
    pairs = read_file(tmp_path / "pairs.jsonl", Pair)
    played = [
        Trajectory(
            task="t", hidden=pair.hidden, messages=(*pair.prompt, *said), answer="", reward=0
        )
        for pair in pairs
        for said in (pair.chosen, pair.rejected)
    ]
    plan = ScorePlan(tiny_base, policy, begin, normalised=False)
    sums = [sum(turns) for turns in scoring.score_turns(plan, played)]
    assert all(chosen > rejected for chosen, rejected in zip(sums[::2], sums[1::2], strict=True))
    merged = adapters.whole(adapters.load_base(tiny_base), begin)
    adapters.save(merged, tmp_path / "merged", base="tiny")
    alike = scoring.score_turns(replace(plan, critic=tmp_path / "merged"), played)
    assert all(abs(turn) < 1e-4 for turns in alike for turn in turns), "the reference is the start"
    interrupted: dict[str, Any] = {"finished": False}
    for _ in range(2):
        interrupted = preferences(
            *(tiny_base, tmp_path, replace(schedule, steps=2, seconds=0.0), "pieces"),
            beta=1.0,
            adapter=begin,
        )
    assert interrupted["finished"]


async def test_a_whole_model_is_sampled_where_only_adapters_are_served(
    tiny_base: Path, tmp_path: Path
) -> None:
    tools = replace(bench(tmp_path, small(tmp_path)), base=tiny_base)
    chat = some_trajectories(1)[0].before(0)
    async with tools.sampler(tiny_base) as sampler:
        [drawn] = await sampler.sample(chat, 1, Sampling(0, 4), 0)
    assert drawn.tokens <= 4


def test_what_is_logged_after_a_kill_is_logged_once(tiny_base: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    sft(tiny_base, tmp_path, replace(SHORT, seconds=0), "out")
    metrics = tmp_path / "out" / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write('{"step": 2, "loss": 99}\n{"step": 3, "lo')  # what was not saved any more
    half = tmp_path / "out" / "checkpoints" / "checkpoint-2"
    half.mkdir()
    (half / adapters.WEIGHTS).write_bytes(b"half of it")
    figures = sft(tiny_base, tmp_path, SHORT, "out")
    assert figures["finished"]
    steps = steps_in(metrics)
    assert steps == sorted(set(steps))
    assert '"loss": 99' not in metrics.read_text(encoding="utf-8")


def test_a_finished_training_is_not_done_again_and_another_is_refused_its_folder(
    tiny_base: Path, tmp_path: Path
) -> None:
    write_data(tmp_path)
    figures = sft(tiny_base, tmp_path, SHORT, "out")
    weights = tmp_path / "out" / "adapter" / adapters.WEIGHTS
    weights.unlink()
    assert sft(tiny_base, tmp_path, replace(SHORT, seconds=9), "out") == figures
    assert not weights.exists()
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path, moved)
    assert sft(tiny_base, moved, SHORT, "out") == figures, "it may go on elsewhere"
    with pytest.raises(Conflict, match="another schedule"):
        sft(tiny_base, tmp_path, replace(SHORT, rate=1), "out")
    write_file(tmp_path / "successes.jsonl", successes(some_trajectories(5)))
    with pytest.raises(Conflict, match="another data"):
        sft(tiny_base, tmp_path, SHORT, "out")


@pytest.mark.parametrize("schedule", [replace(SHORT, micro_batch=3), replace(SHORT, batch=0)])
def test_a_batch_that_cant_be_divided_is_refused(
    tiny_base: Path, tmp_path: Path, schedule: EpochSchedule
) -> None:
    write_data(tmp_path)
    with pytest.raises(InvalidInput, match="can't be divided"):
        sft(tiny_base, tmp_path, schedule, "out")


def test_a_regression_head_wants_one_process(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path)
    two = SimpleNamespace(num_processes=2, is_main_process=True)
    monkeypatch.setattr("sweet_rl.training_run.processes", lambda: two)
    with pytest.raises(InvalidInput, match="one process"):
        regression(tiny_base, tmp_path, SHORT, "out")


def test_a_folder_without_model_or_adapter_is_refused(tiny_base: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    with pytest.raises(InvalidInput, match="holds no model"):
        adapters.load_base(tmp_path)
    with pytest.raises(InvalidInput, match="holds no adapter"):
        preferences(tiny_base, tmp_path, SHORT, "out", adapter=tmp_path)
