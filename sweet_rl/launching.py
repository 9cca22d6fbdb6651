"""Runs a training: in this process, or on several GPUs by accelerate in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from memserver.errors import SetupError, install_extra
from memserver.messages import JsonObject
from sweet_rl.plans import PreferencePlan, SftPlan
from sweet_rl.progress import Progress, unseen

Plan = SftPlan | PreferencePlan
FIGURES = "figures.json"


def trained(plan: Plan, gpus: int, progress: Progress) -> JsonObject:
    """Do (or resume) a training, and return its figures."""
    if gpus > 1:
        return _launched(plan, gpus)
    return train_here(plan, progress)


def train_here(plan: Plan, progress: Progress = unseen) -> JsonObject:
    try:
        from sweet_rl.training import train_preferences, train_sft  # noqa: PLC0415 - torch
    except ImportError as error:
        raise SetupError(
            f"Training needs packages that aren't installed: {error}", hint=install_extra("train")
        ) from error
    if isinstance(plan, SftPlan):
        return train_sft(plan, progress)
    return train_preferences(plan, progress)


def _launched(plan: Plan, gpus: int) -> JsonObject:
    file = plan.out / "plan.json"
    plan.out.mkdir(parents=True, exist_ok=True)
    file.write_bytes(TypeAdapter(type(plan)).dump_json(plan, indent=1))
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--multi_gpu", "--num_processes", str(gpus), "--mixed_precision", "no"),
        *("-m", "sweet_rl.launching", type(plan).__name__, str(file)),
    ]
    ended = subprocess.run(command, check=False)
    if ended.returncode:
        raise SetupError(f"The training in {plan.out} failed with exit code {ended.returncode}.")
    figures: dict[str, Any] = json.loads((plan.out / FIGURES).read_text(encoding="utf-8"))
    return figures


def main(arguments: list[str]) -> int:
    kinds: dict[str, type[Plan]] = {kind.__name__: kind for kind in (SftPlan, PreferencePlan)}
    kind, file = arguments
    train_here(TypeAdapter(kinds[kind]).validate_json(Path(file).read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
