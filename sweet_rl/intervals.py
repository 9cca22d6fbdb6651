"""Intervals of figures that have seeds and tasks.

The bootstrap draws both again, since both are a sample: seeds, and whole families of tasks that are the same for all
seeds. Of few seeds it is hardly more than their range, so Student's t over the seeds' means stands beside it.
"""

import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, stdev

import numpy as np
from scipy.special import stdtrit

from memserver_evals.scoring.statistics import LEVEL, RESAMPLES, Estimate, estimate

BySeed = Mapping[int, Sequence[float]]
"""For each seed a value for each task, in the same order of tasks."""


def estimate_nested(
    values: BySeed, clusters: Sequence[Hashable] | None = None, *, name: str = ""
) -> Estimate:
    """The mean and its 95 % interval, by a bootstrap over seeds and over clusters of tasks.

    Args:
        values: by seed.
        clusters: of each task; None: each is its own. With a single one there is no interval.
        name: seeds the draws.
    """
    table = np.array([list(row) for row in values.values()], dtype=float)
    if not table.size:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean, (seeds, tasks) = float(table.mean()), table.shape
    kinds = list(clusters or range(tasks))
    names = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    if seeds == 1 or len(names) == 1 or (mean in {0.0, 1.0} and np.ptp(table) == 0):
        # one seed, or the exact interval of what is always the same
        by_task = estimate(list(map(float, table.mean(axis=0))), kinds, name=name)
        return Estimate(mean, by_task.low, by_task.high, int(table.size))
    members = np.eye(len(names))[[names[kind] for kind in kinds]]
    sums, sizes, number = table @ members, members.sum(axis=0), len(names)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    of_seeds = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    of_kinds = random.multinomial(number, np.full(number, 1 / number), size=RESAMPLES)
    means = np.einsum("rs,sk,rk->r", of_seeds, sums, of_kinds, optimize=True) / (of_kinds @ sizes)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high), int(table.size))


def t_interval(values: Sequence[float]) -> Estimate:
    """The mean with its 95 % interval by Student's t; of one value there is none."""
    mean = fmean(values) if values else math.nan
    if len(values) < 2:
        return Estimate(mean, math.nan, math.nan, len(values))
    width = stdtrit(len(values) - 1, (1 + LEVEL) / 2) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, float(mean - width), float(mean + width), len(values))
