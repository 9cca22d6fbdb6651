"""Intervals of figures that have seeds and tasks: both are drawn again, since both are a sample.

Every seed plays the same tasks, so the two are crossed: a resample draws seeds, and tasks that are the same
for all of them. With few seeds the interval says little of how other seeds would do.
"""

import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from memserver_evals.scoring.statistics import LEVEL, RESAMPLES, Estimate, estimate

BySeed = Mapping[int, Sequence[float]]
"""For each seed a value for each task, in the same order of tasks."""


def estimate_nested(values: BySeed, *, name: str = "") -> Estimate:
    """The mean and its 95 % interval, by a bootstrap over seeds and over tasks."""
    table = np.array([list(row) for row in values.values()], dtype=float)
    if not table.size:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = float(table.mean())
    seeds, tasks = table.shape
    if seeds == 1 or (mean in {0.0, 1.0} and np.ptp(table) == 0):
        # one seed, or the exact interval of what is always the same
        by_task = estimate(list(map(float, table.mean(axis=0))), name=name)
        return Estimate(mean, by_task.low, by_task.high, int(table.size))
    random = np.random.default_rng(zlib.crc32(name.encode()))
    of_seeds = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    of_tasks = random.multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES) / tasks
    means = np.einsum("rs,st,rt->r", of_seeds, table, of_tasks, optimize=True)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high), int(table.size))
