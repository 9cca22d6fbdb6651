"""What all trainings have in common: a folder that can be resumed, a time limit, metrics, figures.

training.json what is trained, and on what; another training is refused the folder
checkpoints/  the newest one is resumed
metrics.jsonl, tensorboard/   every value that the trainer logs
adapter/, figures.json        once it is finished
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PrinterCallback, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from typing_extensions import override

from memserver.errors import Conflict, InvalidInput
from memserver_evals.runs.run_folder import AppendOnly, write_whole
from sweet_rl import adapters
from sweet_rl.plans import EpochSchedule, PreferencePlan, SftPlan
from sweet_rl.progress import Progress

Figures = dict[str, Any]
Trainer = Any
ADAPTER, FIGURES, METRICS, PLAN = "adapter", "figures.json", "metrics.jsonl", "training.json"
_FREE = ("seconds", "micro_batch", "save_every", "checkpointing")
"""Of a schedule: what may be another in the next call."""


def processes() -> PartialState:
    """The processes that train together, as accelerate knows them; mostly there is one."""
    return PartialState(cpu=not torch.cuda.is_available())


def claim(plan: SftPlan | PreferencePlan, data: Path) -> None:
    """Make the folder this training's own, or see that it is.

    What counts of files is what is in them, not where they are: a run may be resumed elsewhere.
    """
    values = asdict(plan)
    values.pop("base_name")
    if not values.get("in_order"):  # as it was before there was a choice
        values.pop("in_order", None)
    identity = {name: value for name, value in values.items() if not isinstance(value, Path)}
    identity["schedule"] = {
        name: value for name, value in values["schedule"].items() if name not in _FREE
    }
    identity |= {"base": plan.base.name, "data": _hash(data), "adapter": None}
    if plan.adapter is not None:
        identity["adapter"] = _hash(adapters.checked(plan.adapter) / adapters.WEIGHTS)
    if not processes().is_main_process:
        return
    plan.out.mkdir(parents=True, exist_ok=True)
    file = plan.out / PLAN
    if not file.exists():
        write_whole(file, json.dumps(identity, indent=2) + "\n")
        return
    old = json.loads(file.read_text(encoding="utf-8"))
    changed = sorted(
        name for name in old.keys() | identity.keys() if old.get(name) != identity.get(name)
    )
    if changed:
        raise Conflict(
            f"{plan.out} has a training with another {', '.join(changed)}.",
            hint="Name another folder, or delete this one.",
        )


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def finished(out: Path) -> Figures | None:
    try:
        figures: Figures = json.loads((out / FIGURES).read_text(encoding="utf-8"))
    except OSError:
        return None
    return figures if figures["finished"] else None


def arguments(schedule: EpochSchedule, out: Path) -> dict[str, Any]:
    """What TRL's configurations have in common."""
    share, rest = divmod(schedule.batch, processes().num_processes)
    at_once = min(schedule.micro_batch or share, share)
    if rest or not share or share % at_once:
        raise InvalidInput(
            f"A batch of {schedule.batch} can't be divided among {processes().num_processes} "
            f"processes in parts of {schedule.micro_batch or share}."
        )
    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(out / "checkpoints"),
        "num_train_epochs": schedule.epochs,
        "max_steps": -1 if schedule.steps is None else schedule.steps,
        "per_device_train_batch_size": at_once,
        "gradient_accumulation_steps": share // at_once,
        "learning_rate": schedule.rate,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_steps": schedule.warmup,
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "bf16": on_gpu and schedule.precision == "bfloat16",
        "use_cpu": not on_gpu,
        "gradient_checkpointing": schedule.checkpointing,
        "max_length": None,
        "logging_steps": 5,
        "logging_first_step": True,
        "save_steps": schedule.save_every,
        "save_total_limit": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": schedule.seed,
    }


def run(
    trainer: Trainer,
    out: Path,
    schedule: EpochSchedule,
    progress: Progress,
    patience: int | None = None,
) -> Figures:
    """Train until the end, or until the time or the patience is over; all leave a checkpoint."""
    trainer.remove_callback(PrinterCallback)
    limit, early = TimeLimit(schedule.seconds), StopEarly(patience)
    for callback in (Metrics(out), limit, early, Reports(progress)):
        trainer.add_callback(callback)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    start = time.monotonic()
    checkpoint = newest_checkpoint(out / "checkpoints")
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    state = trainer.state
    return {
        "finished": state.global_step >= state.max_steps or early.stopped or not limit.stopped,
        "steps": state.global_step,
        "of_steps": state.max_steps,
        "epochs": round(state.epoch or 0, 3),
        "seconds": round(time.monotonic() - start, 1),
        "loss": next((one["loss"] for one in reversed(state.log_history) if "loss" in one), None),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "gpu_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        "processes": processes().num_processes,
    }


def conclude(out: Path, figures: Figures, save: Callable[[Path], None]) -> Figures:
    if processes().is_main_process:
        if figures["finished"]:
            save(out / ADAPTER)
        write_whole(out / FIGURES, json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    processes().wait_for_everyone()
    return figures


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole one. What a kill left half written is deleted."""
    places = {
        int(path.name.rpartition("-")[2]): path
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    }
    for _, path in sorted(places.items(), reverse=True):
        if (path / "trainer_state.json").exists():  # it is written last
            return path
        if processes().is_main_process:
            shutil.rmtree(path)
    return None


class Metrics(TrainerCallback):  # type: ignore[misc]
    """Writes what the trainer logs as JSON Lines and, where tensorboard is installed, for it.

    When a training is resumed, lines of steps that are done again are dropped.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._board: Any = None

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        file = self._out / METRICS
        AppendOnly(file).close()  # cuts off half a line
        lines = file.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["step"] <= state.global_step]
        write_whole(file, "".join(f"{line}\n" for line in kept))
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra of its own
        except ImportError:
            return
        self._board = SummaryWriter(
            str(self._out / "tensorboard"), purge_step=state.global_step + 1
        )

    @override
    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        values = {name: float(value) for name, value in (logs or {}).items()}
        with (self._out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, state.global_step)

    @override
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._board is not None:
            self._board.close()


class TimeLimit(TrainerCallback):  # type: ignore[misc]
    """Stops after a step, with a checkpoint, when the time is over; all processes at the same step."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.stopped = False

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        over = self._end is not None and time.monotonic() >= self._end
        if self._end is not None and processes().num_processes > 1:
            votes = torch.tensor(int(over), device=processes().device)
            torch.distributed.all_reduce(votes, op=torch.distributed.ReduceOp.MAX)
            over = bool(votes)
        if over:
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True


class StopEarly(TrainerCallback):  # type: ignore[misc]
    """Ends a training whose held-out loss has been above its lowest for so many measurements.

    It counts in the trainer's own log, which a checkpoint keeps: a training that is resumed ends where it would have.
    """

    def __init__(self, patience: int | None) -> None:
        self._patience = patience
        self.stopped = False

    @override
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        losses = [line["eval_loss"] for line in state.log_history if "eval_loss" in line]
        after = len(losses) - 1 - losses.index(min(losses))
        if self._patience is not None and after >= self._patience:
            self.stopped = control.should_training_stop = True


class Reports(TrainerCallback):  # type: ignore[misc]
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress(state.global_step, state.max_steps)

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress(state.global_step, state.max_steps)
