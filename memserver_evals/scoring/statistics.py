"""Intervals and paired differences, by the bootstrap. The same values give the same numbers.

Examples that share something (questions on one conversation) are no independent draws: they are drawn
together, by cluster.
"""

import math
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95
_AT_ONCE = 4_000_000
"""Numbers that a batch of resamples may have."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval; nan where there is nothing to estimate it from.

    `low` and `high` are the ends of the 95 % interval, nan where all comes from one cluster.
    """

    mean: float
    low: float
    high: float
    count: int

    def shown(self, digits: int = 3, *, of_mean: int = 3, sign: bool = False) -> str:
        """For people: `0.512 [0.480, 0.544]`; a dash where there is no mean."""
        if math.isnan(self.mean):
            return "-"
        mean = f"{self.mean:{'+' if sign else ''}.{of_mean}f}"
        interval = self.interval(digits, sign=sign)
        return f"{mean} {interval}" if interval else mean

    def interval(self, digits: int = 3, *, sign: bool = False) -> str:
        """The interval alone; empty where there is none."""
        form = f"{'+' if sign else ''}.{digits}f"
        return "" if math.isnan(self.low) else f"[{self.low:{form}}, {self.high:{form}}]"


@dataclass(frozen=True, slots=True)
class Difference:
    """How B differs from A on the same examples."""

    estimate: Estimate  # of B minus A
    a: float  # A's mean on these examples
    b: float  # B's
    better: int  # examples on which B is better; `worse` and `equal` likewise
    worse: int
    equal: int
    p: float  # how often chance alone (which of both got which score) makes a difference as large


def estimate(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, *, name: str = ""
) -> Estimate:
    """The mean and its 95 % percentile bootstrap interval.

    Where all values are 0, or all 1, each resample is like the other and the bootstrap would give an
    interval of no width; the exact binomial one takes its place.

    Args:
        values: nan is no value.
        clusters: of each value; None: each is its own.
        name: seeds the draws, so that two estimates don't share their chance.
    """
    sums, sizes = _by_cluster(values, clusters)
    count = int(sizes.sum())
    if not count:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = float(sums.sum() / count)
    if len(sums) == 1:
        return Estimate(mean, math.nan, math.nan, count)
    if mean in {0.0, 1.0} and _is_constant(values):
        width = 1 - ((1 - LEVEL) / 2) ** (1 / len(sums))
        low, high = (0.0, width) if mean == 0 else (1 - width, 1.0)
        return Estimate(mean, low, high, count)
    means = np.concatenate([(draws @ sums) / (draws @ sizes) for draws in _draws(len(sums), name)])
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high), count)


def difference(
    a: Sequence[float],
    b: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    name: str = "",
) -> Difference:
    """How the scores of B differ from those of A, example by example.

    `p` is of a permutation test: the signs of the differences are drawn again, by cluster.
    """
    pairs = [
        (x, y, cluster)
        for x, y, cluster in zip(a, b, clusters or range(len(a)), strict=True)
        if not (math.isnan(x) or math.isnan(y))
    ]
    differences = [y - x for x, y, _ in pairs]
    kept = [cluster for *_, cluster in pairs]
    sums, sizes = _by_cluster(differences, kept)
    count = len(pairs)
    return Difference(
        estimate(differences, kept, name=name),
        _mean([x for x, _, _ in pairs]),
        _mean([y for _, y, _ in pairs]),
        sum(each > 0 for each in differences),
        sum(each < 0 for each in differences),
        sum(each == 0 for each in differences),
        _permutation(sums, int(sizes.sum()), name) if count else math.nan,
    )


def _permutation(
    sums: "np.ndarray[tuple[int], np.dtype[np.float64]]", count: int, name: str
) -> float:
    random = np.random.default_rng(_seed(f"{name} permutation"))
    seen = abs(float(sums.sum())) / count
    extreme, left = 0, RESAMPLES
    while left:
        rows = max(1, min(left, _AT_ONCE // len(sums)))
        signs = random.choice([-1.0, 1.0], size=(rows, len(sums)))
        extreme += int((np.abs(signs @ sums) / count >= seen - 1e-12).sum())
        left -= rows
    return (extreme + 1) / (RESAMPLES + 1)


def _draws(clusters: int, name: str) -> "list[np.ndarray[tuple[int, int], np.dtype[np.int64]]]":
    """How often each cluster is in each resample, in batches of resamples."""
    random = np.random.default_rng(_seed(name))
    rows = max(1, _AT_ONCE // clusters)
    even = np.full(clusters, 1 / clusters)
    return [
        random.multinomial(clusters, even, size=min(rows, RESAMPLES - start))
        for start in range(0, RESAMPLES, rows)
    ]


def _by_cluster(
    values: Sequence[float], clusters: Sequence[Hashable] | None
) -> "tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]":
    sums: dict[Hashable, float] = {}
    sizes: dict[Hashable, int] = {}
    for value, cluster in zip(values, clusters or range(len(values)), strict=True):
        if not math.isnan(value):
            sums[cluster] = sums.get(cluster, 0.0) + value
            sizes[cluster] = sizes.get(cluster, 0) + 1
    return np.array(list(sums.values()), dtype=float), np.array(list(sizes.values()), dtype=float)


def _is_constant(values: Sequence[float]) -> bool:
    return len({value for value in values if not math.isnan(value)}) == 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())
