"""A training that accelerate runs in two processes is the same training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sweet_rl.pairs import trajectory_pairs
from sweet_rl.plans import EpochSchedule, PreferencePlan
from sweet_rl.trajectories import write_file
from tests.support.lazy import lazy
from tests.support.nightly import NIGHTLY
from tests.sweet_rl.conversations import some_trajectories

adapters = lazy("sweet_rl.adapters")
preferences = lazy("sweet_rl.training")
safetensors_torch = lazy("safetensors.torch")
torch = lazy("torch")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not NIGHTLY, reason="takes most of a minute: make nightly"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
RUN = """
import sys; from pathlib import Path; from pydantic import TypeAdapter
from sweet_rl.plans import PreferencePlan; from sweet_rl.training import train_preferences
train_preferences(TypeAdapter(PreferencePlan).validate_json(Path(sys.argv[1]).read_bytes()))
"""


def plan_of(base: Path, folder: Path, out: str, seconds: float | None = None) -> PreferencePlan:
    schedule = EpochSchedule(steps=3, batch=4, micro_batch=2, rate=1e-2, seconds=seconds)
    return PreferencePlan(
        base,
        folder / "pairs.jsonl",
        folder / out,
        loss="turn_mean",
        nll=0,
        held_out=folder / "pairs.jsonl",
        schedule=schedule,
    )


def in_two_processes(plan: PreferencePlan, folder: Path) -> dict[str, object]:
    (folder / "plan").write_bytes(TypeAdapter(PreferencePlan).dump_json(plan))
    (folder / "run.py").write_text(RUN, encoding="utf-8")
    # what `accelerate launch --multi_gpu` starts; on a CPU that launcher wants MPI
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    subprocess.run(
        [*launch, str(folder / "run.py"), str(folder / "plan")],
        check=True,
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )
    return json.loads((plan.out / "figures.json").read_text(encoding="utf-8"))


def test_two_processes_learn_what_one_learns_and_stop_at_the_same_step(
    tiny_base: Path, tmp_path: Path
) -> None:
    write_file(tmp_path / "pairs.jsonl", trajectory_pairs(some_trajectories(4)))
    alone = preferences.train_preferences(plan_of(tiny_base, tmp_path, "alone"))
    stopped = in_two_processes(plan_of(tiny_base, tmp_path, "together", seconds=0), tmp_path)
    assert (stopped["steps"], stopped["finished"], stopped["processes"]) == (1, False, 2)
    together = in_two_processes(plan_of(tiny_base, tmp_path, "together"), tmp_path)
    assert (together["steps"], together["finished"]) == (3, True)
    assert together["held_out_pairs"] == alone["held_out_pairs"]
    assert together["held_out_margin"] == pytest.approx(alone["held_out_margin"], rel=0.02)
    one, other = (
        safetensors_torch.load_file(tmp_path / out / "adapter" / adapters.WEIGHTS)
        for out in ("alone", "together")
    )
    assert all(torch.allclose(one[key], other[key], atol=2e-3) for key in one)
