"""A process of `memserver train` for one unit, that ends with us."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memserver.local.engine import supervise
from sweet_rl.runs.bench import Bench
from sweet_rl.runs.stages import Unit

_HUMAN_KEY = "MEMSERVER_HUMAN_API_KEY"
_GPUS = "CUDA_VISIBLE_DEVICES"
_GRACE = 10.0
_LAST_LINES = 15


def visible_gpus() -> tuple[str, ...]:
    told = os.environ.get(_GPUS)  # noqa: TID251 - not a setting of ours
    if told is not None:
        return tuple(filter(None, told.split(",")))
    import torch  # noqa: PLC0415 - heavy

    return tuple(map(str, range(torch.cuda.device_count())))


@dataclass(frozen=True)
class UnitProcess:
    child: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> int | None:
        return self.child.poll()

    def last_lines(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join([*text.splitlines()[-_LAST_LINES:], f"Its log is {self.log}."])

    def dismiss(self) -> None:
        self.child.terminate()

    def stop(self) -> None:
        self.child.terminate()
        try:
            self.child.wait(_GRACE + 2)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()


@dataclass(frozen=True)
class UnitProcesses:
    options: Sequence[str]  # of `memserver train`, those that `bench` doesn't tell
    bench: Bench  # whose surroundings and deadline they have
    gpus: Sequence[
        str
    ] = ()  # as CUDA_VISIBLE_DEVICES names them, by their number here; empty where there are none
    # units at once; each has its share of the cores, unless OMP_NUM_THREADS says otherwise
    jobs: int = 1

    def start(self, unit: Unit, place: int, endpoints: Sequence[str]) -> UnitProcess:
        logs = self.bench.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{unit.path.replace('/', '-')}.log"
        environment = dict(os.environ)  # noqa: TID251 - the child's
        if self.bench.around.human is not None:
            environment[_HUMAN_KEY] = self.bench.around.human.api_key  # others can't read it there
        share = max(1, len(os.sched_getaffinity(0)) // self.jobs)
        environment.setdefault("OMP_NUM_THREADS", str(share))
        if self.gpus:
            environment[_GPUS] = self.gpus[place]
        with log.open("ab") as file:
            child = subprocess.Popen(
                self._command(unit, endpoints),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        return UnitProcess(child, log)

    def _command(self, unit: Unit, endpoints: Sequence[str]) -> list[str]:
        around, left = self.bench.around, self.bench.deadline.left
        return [
            *(sys.executable, "-I", supervise.__file__, str(os.getpid()), f"{_GRACE:g}"),
            *(sys.executable, "-m", "sweet_rl.cli", "all", "--only", unit.path),
            *self.options,
            *(word for address in endpoints for word in ("--endpoint", address)),
            *(() if left is None else ("--seconds", f"{max(1.0, left):.0f}")),
            *(() if around.data is None else ("--data", f"{around.data}")),
            *(() if around.human is None else ("--human-url", around.human.base_url)),
            *(("--disposable",) if around.disposable else ()),
        ]
