"""What a process that does a unit is told: its unit, its GPU, and what it may not show to others."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memserver.openai_http.endpoint import Endpoint
from sweet_rl.resumable import Deadline
from sweet_rl.runs.parallel import UnitLauncher, visible_gpus
from sweet_rl.runs.units import units_of
from sweet_rl.task_sets import Environment
from tests.sweet_rl.small_run import bench, small

TELLS = """#!/bin/sh
echo "words: $@"
echo "gpu $CUDA_VISIBLE_DEVICES, threads $OMP_NUM_THREADS, key $MEMSERVER_HUMAN_API_KEY"
exit 3
"""


def test_a_process_is_told_its_unit_its_place_and_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(TELLS, encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    human = Endpoint("http://human/v1", "a-secret")
    tools = replace(
        bench(tmp_path, small(tmp_path)),
        environment=Environment(tmp_path / "data", human, disposable=True),
        deadline=Deadline.after(1000),
    )
    unit = next(unit for unit in units_of(tools.recipe) if unit.path == "seed-1/evaluate.sweet")
    started = UnitLauncher(["--set", "a=1"], tools, gpus=("4", "6")).start(
        unit, 1, ["http://a/v1", "http://b/v1"]
    )
    assert started.child.wait(30) == started.ended() == 3
    told = started.last_lines()
    assert "gpu 6, threads 7, key a-secret" in told
    for words in (
        "all --only seed-1/evaluate.sweet --set a=1",
        "--endpoint http://a/v1 --endpoint http://b/v1",
        f"--data {tmp_path / 'data'} --human-url http://human/v1 --disposable",
    ):
        assert words in told
    assert 990 <= int(told.partition("--seconds ")[2].split()[0]) <= 1000
    assert "a-secret" not in told.partition("\n")[0], "anybody can read a command line"


def test_the_gpus_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert visible_gpus() == ("1", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == ()
