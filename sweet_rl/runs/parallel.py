"""Runs several units at once, each in a process of its own: one training of a small model leaves a GPU half idle."""

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from memserver.errors import SetupError
from memserver.local.engine.logged_process import LoggedProcess
from sweet_rl.progress import Progress
from sweet_rl.resumable import EXIT_STATUS, OutOfTime
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.run import OnDone, Selection, left_of, samples
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.units import Unit

_HUMAN_KEY = "MEMSERVER_HUMAN_API_KEY"
_GPUS = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(_GPUS)  # noqa: TID251 - not a setting of ours
    if named is not None:
        return tuple(filter(None, named.split(",")))
    import torch  # noqa: PLC0415 - heavy

    return tuple(map(str, range(torch.cuda.device_count())))


@dataclass(frozen=True)
class UnitLauncher:
    """Starts a process of `memserver train` for one unit."""

    options: Sequence[str]  # of the command, those that the context doesn't have
    context: RunContext
    gpus: Sequence[str] = ()  # as CUDA_VISIBLE_DEVICES names them; empty where there are none
    jobs: int = (
        1  # units at once; each has its share of the cores, unless OMP_NUM_THREADS says otherwise
    )

    def start(self, unit: Unit, place: int, endpoints: Sequence[str]) -> LoggedProcess:
        """Have a process do a unit whose needs are done, on one of the GPUs, sampling by these endpoints."""
        logs = self.context.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        variables = dict(os.environ)  # noqa: TID251 - the child's
        if self.context.environment.human is not None:  # others can't read it there
            variables[_HUMAN_KEY] = self.context.environment.human.api_key
        share = max(1, len(os.sched_getaffinity(0)) // self.jobs)
        variables.setdefault("OMP_NUM_THREADS", str(share))
        if self.gpus:
            variables[_GPUS] = self.gpus[place]
        log = logs / f"{unit.path.replace('/', '-')}.log"
        return LoggedProcess.start(self._command(unit, endpoints), log, variables)

    def _command(self, unit: Unit, endpoints: Sequence[str]) -> list[str]:
        around, left = self.context.environment, self.context.deadline.left
        return [
            *(sys.executable, "-m", "sweet_rl.cli", "all", "--only", unit.path),
            *self.options,
            *(word for address in endpoints for word in ("--endpoint", address)),
            *(() if left is None else ("--seconds", f"{max(1.0, left):.0f}")),
            *(() if around.data is None else ("--data", f"{around.data}")),
            *(() if around.human is None else ("--human-url", around.human.base_url)),
            *(("--disposable",) if around.disposable else ()),
        ]


@dataclass
class ParallelRunner:
    context: RunContext
    launcher: UnitLauncher
    on_done: OnDone
    pause: float = 0.1  # seconds between looks at the processes
    _running: dict[str, tuple[Unit, int, LoggedProcess]] = field(default_factory=dict, init=False)

    def run(self, units: Sequence[Unit], wanted: Selection, *, redo: bool = False) -> list[Unit]:
        """As `run_units`: do what is wanted and not done yet, and return what was done now.

        When a process has failed none is started any more; those that run are waited for.
        """
        state = RunState(self.context.out)
        waiting = left_of(units, wanted, state, redo=redo)
        if any(samples(unit, self.context.recipe) for unit in waiting):
            self.context.source.prepare()
        try:
            with self.context.shows("units") as progress:
                done = self._run_all(waiting, state, progress)
        finally:
            for _, _, process in self._running.values():
                process.dismiss()  # all of them, before the first is waited for
            for _, _, process in self._running.values():
                process.stop()
        if missing := left_of(units, wanted, state):
            raise OutOfTime(
                f"The time is over: {len(missing)} units are not done.",
                hint="What is done is kept; the same command resumes.",
            )
        return done

    def _run_all(self, waiting: list[Unit], state: RunState, progress: Progress) -> list[Unit]:
        number, done, failures = len(waiting), list[Unit](), list[str]()
        deadline = self.context.deadline
        while self._running or (waiting and not failures and not deadline.passed):
            if not failures and not deadline.passed:
                self._start_ready(waiting, state)
            time.sleep(self.pause)
            for path, (unit, _, process) in list(self._running.items()):
                if (status := process.ended()) is None:
                    continue
                del self._running[path]
                if (figures := state.figures(unit)) is not None:
                    done.append(unit)
                    self.on_done(unit, figures, state.seconds(unit))
                elif status != EXIT_STATUS:
                    failures.append(f"{path} failed:\n{process.last_lines()}")
            progress(len(done), number)
        if failures:
            raise SetupError(failures[0], hint="What is done is kept; the same command resumes.")
        return done

    def _start_ready(self, waiting: list[Unit], state: RunState) -> None:
        """Start, in their order, units whose needs are done; those that sample once the endpoints are ready."""
        ready = [
            unit
            for unit in waiting
            if all(state.figures(needed) is not None for needed in unit.needs.values())
        ]
        sampling = [unit for unit in ready if samples(unit, self.context.recipe)]
        endpoints = self.context.source.addresses() if sampling else ()
        for unit in ready:
            if len(self._running) == self.launcher.jobs:
                return
            if unit in sampling and endpoints is None:
                continue
            waiting.remove(unit)
            loads = Counter(place for _, place, _ in self._running.values())
            place = min(range(max(1, len(self.launcher.gpus))), key=lambda one: loads[one])
            named = (endpoints or ()) if unit in sampling else ()
            self._running[unit.path] = (unit, place, self.launcher.start(unit, place, named))
