"""How policies differ: by seeds, with a t-interval, and by topics of the tasks, with a bootstrap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import fmean, stdev

from memserver_evals.scoring.statistics import Estimate, estimate

T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom."""
Rewards = Mapping[str, float]
"""By task."""


@dataclass(frozen=True, slots=True)
class Difference:
    by_seed: tuple[float, ...]  # of their mean rewards on the tasks that both played, seed by seed
    seeds: Estimate  # the mean of these with its t-interval
    topics: Estimate  # the mean over tasks, with an interval that draws topics

    @property
    def is_better(self) -> bool:
        return self.seeds.low > 0 and self.topics.low > 0


def t_interval(values: Sequence[float]) -> Estimate:
    """The mean with its 95 % interval by Student's t; of one value there is none."""
    mean = fmean(values) if values else nan
    freedom = len(values) - 1
    if freedom < 1:
        return Estimate(mean, nan, nan, len(values))
    half = T_975[min(freedom, len(T_975)) - 1] * stdev(values) / sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


def difference(
    one: Mapping[int, Rewards], other: Mapping[int, Rewards], topics: Mapping[str, str]
) -> Difference | None:
    """How much more one arm earns than another; None where no seed has both."""
    seeds = sorted(one.keys() & other.keys())
    tasks = (
        sorted(set.intersection(*(one[s].keys() & other[s].keys() for s in seeds))) if seeds else []
    )
    if not tasks:
        return None
    by_seed = [fmean(one[seed][task] - other[seed][task] for task in tasks) for seed in seeds]
    by_task = [fmean(one[seed][task] - other[seed][task] for seed in seeds) for task in tasks]
    clusters = [topics[task] for task in tasks]
    return Difference(tuple(by_seed), t_interval(by_seed), estimate(by_task, clusters))
