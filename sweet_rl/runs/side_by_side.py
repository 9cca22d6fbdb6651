"""Runs several units at once, each in a process of its own: one training of a small model leaves a GPU half idle."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from memserver.errors import SetupError
from sweet_rl.deadline import EXIT_STATUS, OutOfTime
from sweet_rl.plans import Progress
from sweet_rl.runs.bench import Bench
from sweet_rl.runs.run import Selection, Told, left_of, samples
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.stages import Unit


class Started(Protocol):
    def ended(self) -> int | None: ...

    def last_lines(self) -> str: ...

    def dismiss(self) -> None: ...

    def stop(self) -> None: ...


class Launcher(Protocol):
    def start(self, unit: Unit, place: int, endpoints: Sequence[str]) -> Started:
        """Have a process do a unit."""
        ...


@dataclass
class SideBySide:
    bench: Bench  # what units work with, of which the processes are told
    launcher: Launcher  # of the processes
    told: Told  # of each unit that was done
    jobs: int  # units at once, at most
    places: int = 1  # GPUs, over which they are spread
    pause: float = 0.1  # seconds between looks at the processes
    _running: dict[str, tuple[Unit, int, Started]] = field(default_factory=dict, init=False)

    def run(self, units: Sequence[Unit], wanted: Selection, *, redo: bool = False) -> list[Unit]:
        """As `run_units`: do what is wanted and not done yet, and return what was done now."""
        state = RunState(self.bench.out)
        waiting = left_of(units, wanted, state, redo=redo)
        if any(samples(unit, self.bench.recipe) for unit in waiting):
            self.bench.source.prepare()
        try:
            with self.bench.shows("units") as progress:
                done = self._all(waiting, state, progress)
        finally:
            for _, _, process in self._running.values():
                process.dismiss()  # all of them, before the first is waited for
            for _, _, process in self._running.values():
                process.stop()
        if missing := left_of(units, wanted, state):
            raise OutOfTime(
                f"The time is over: {len(missing)} units are not done.",
                hint="What is done is kept; the same command goes on.",
            )
        return done

    def _all(self, waiting: list[Unit], state: RunState, progress: Progress) -> list[Unit]:
        """Start units and wait for them until none is left, the time is over, or one failed."""
        number, done = len(waiting), []
        failures: list[str] = []
        while self._running or (waiting and not failures and not self.bench.deadline.passed):
            if not failures and not self.bench.deadline.passed:
                self._start(waiting, state)
            time.sleep(self.pause)
            for unit, status, last_lines in self._ended():
                if (figures := state.figures(unit)) is not None:
                    done.append(unit)
                    self.told(unit, figures, state.seconds(unit))
                elif status != EXIT_STATUS:
                    failures.append(f"{unit.path} failed:\n{last_lines}")
            progress(len(done), number)
        if failures:
            raise SetupError(failures[0], hint="What is done is kept; the same command goes on.")
        return done

    def _start(self, waiting: list[Unit], state: RunState) -> None:
        ready = [
            unit
            for unit in waiting
            if all(state.figures(needed) is not None for needed in unit.needs.values())
        ]
        sampling = [unit for unit in ready if samples(unit, self.bench.recipe)]
        endpoints = self.bench.source.addresses() if sampling else ()
        for unit in ready:
            if len(self._running) == self.jobs:
                return
            if unit not in sampling or endpoints is not None:
                waiting.remove(unit)
                place = self._emptiest()
                told = (endpoints or ()) if unit in sampling else ()
                process = self.launcher.start(unit, place, told)
                self._running[unit.path] = (unit, place, process)

    def _emptiest(self) -> int:
        loads = Counter(place for _, place, _ in self._running.values())
        return min(range(self.places), key=lambda place: loads[place])

    def _ended(self) -> list[tuple[Unit, int, str]]:
        found = []
        for path, (unit, _, process) in list(self._running.items()):
            status = process.ended()
            if status is not None:
                found.append((unit, status, process.last_lines()))
                del self._running[path]
        return found
