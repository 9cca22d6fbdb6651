"""A plain turn of this checkout beside that of another one, in one run.

Both servers run at once, and turns are timed in alternating blocks, so that what else the machine does, and
how fast it is just then, weighs on both alike.
"""

import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.turn_stage import Stage, stage

BLOCK = 25
"""Turns of one server before the other one's."""
BLOCKS_PER_AGENT = 4
RESAMPLES = 4000


@dataclass(frozen=True)
class Pair:
    """What a turn took of each server, in milliseconds, and ours for theirs.

    Attributes:
        cpu_ratio: our CPU for theirs, with the ends of its 95 % interval by a bootstrap over the rounds.
    """

    rounds: int
    ours_cpu_ms: float
    theirs_cpu_ms: float
    cpu_ratio: float
    cpu_ratio_low: float
    cpu_ratio_high: float
    ours_p50_ms: float
    theirs_p50_ms: float


def compare(theirs: Path, rounds: Iterable[int], seed: int) -> Pair:
    """Time plain turns of both.

    Args:
        theirs: the other checkout, with its own `.venv`.
        rounds: one item for each block of both.
        seed: of the messages' words.
    """
    with stage(seed) as here, stage(seed, theirs) as there:
        sides = (_Side(here), _Side(there))
        for number in rounds:
            # The other way round each time, so that none is always the first.
            for side in sides if number % 2 == 0 else sides[::-1]:
                side.block(meets_agent=number % BLOCKS_PER_AGENT == 0)
    return _pair(sides[0], sides[1], random.Random(seed))


class _Side:
    def __init__(self, on: Stage) -> None:
        self._on = on
        self.took: list[float] = []
        self.cpu: list[float] = []
        """CPU seconds of each block."""

    def block(self, *, meets_agent: bool) -> None:
        if meets_agent:
            self._on.talker.meet_agent()
        before = self._on.server.cpu_seconds()
        self.took += [self._on.talker.turn() for _ in range(BLOCK)]
        self.cpu.append(self._on.server.cpu_seconds() - before)


def _pair(ours: _Side, theirs: _Side, source: random.Random) -> Pair:
    paired = list(zip(ours.cpu, theirs.cpu, strict=True))
    drawn = sorted(_ratio(source.choices(paired, k=len(paired))) for _ in range(RESAMPLES))
    return Pair(
        rounds=len(paired),
        ours_cpu_ms=round(1000 * statistics.fmean(ours.cpu) / BLOCK, 2),
        theirs_cpu_ms=round(1000 * statistics.fmean(theirs.cpu) / BLOCK, 2),
        cpu_ratio=round(_ratio(paired), 3),
        cpu_ratio_low=round(drawn[int(0.025 * RESAMPLES)], 3),
        cpu_ratio_high=round(drawn[int(0.975 * RESAMPLES)], 3),
        ours_p50_ms=round(1000 * statistics.median(ours.took), 2),
        theirs_p50_ms=round(1000 * statistics.median(theirs.took), 2),
    )


def _ratio(paired: Sequence[tuple[float, float]]) -> float:
    return sum(ours for ours, _ in paired) / sum(theirs for _, theirs in paired)


def table(pair: Pair) -> Table:
    """The two checkouts beside each other."""
    interval = f"{pair.cpu_ratio:g} ({pair.cpu_ratio_low:g} to {pair.cpu_ratio_high:g})"
    made = Table("", "here", "there", title=f"CPU of a turn, here for there: {interval}")
    made.add_row("CPU ms", f"{pair.ours_cpu_ms:g}", f"{pair.theirs_cpu_ms:g}")
    made.add_row("p50 ms", f"{pair.ours_p50_ms:g}", f"{pair.theirs_p50_ms:g}")
    return made
