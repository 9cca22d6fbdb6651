"""A training on several GPUs is the same plan, in processes that accelerate starts."""

import json
import subprocess
from pathlib import Path

import pytest

from memserver.errors import SetupError
from sweet_rl import launching
from sweet_rl.launching import Plan, trained
from sweet_rl.plans import EpochSchedule, PreferencePlan, SftPlan
from sweet_rl.progress import Progress, unseen


def plans(folder: Path) -> list[Plan]:
    schedule = EpochSchedule(steps=3, batch=4, seconds=7.5, seed=9)
    return [
        SftPlan(Path("/base"), folder / "learnt.jsonl", folder / "rft", schedule=schedule),
        PreferencePlan(
            Path("/base"),
            folder / "pairs.jsonl",
            folder / "critic",
            adapter=Path("/adapter"),
            loss="turn_mean",
            hidden=True,
            held_out=folder / "held_out.jsonl",
        ),
    ]


@pytest.mark.parametrize("number", [0, 1], ids=["sft", "preferences"])
def test_each_process_gets_the_plan_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    plan = plans(tmp_path)[number]
    seen: list[Plan] = []

    def train(given: Plan, progress: Progress = unseen) -> dict[str, object]:
        seen.append(given)
        (given.out / "figures.json").write_text(json.dumps({"steps": 3}), encoding="utf-8")
        return {}

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        place = command.index("sweet_rl.launching")
        assert command[command.index("--num_processes") + 1] == "2"
        return subprocess.CompletedProcess(command, launching.main(command[place + 1 :]))

    monkeypatch.setattr(launching, "train_here", train)
    monkeypatch.setattr(subprocess, "run", run)
    assert trained(plan, 2, unseen) == {"steps": 3}
    assert seen == [plan]


def test_a_process_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda command, check: subprocess.CompletedProcess(command, 9)
    )
    with pytest.raises(SetupError, match="exit code 9"):
        trained(plans(tmp_path)[0], 2, unseen)
