"""Intervals that hold what they should, and differences of pairs."""

import math
import random

import pytest

from memserver_evals.scoring.statistics import difference, estimate
from tests.support.nightly import times


def test_the_interval_of_a_large_sample_is_that_of_the_normal_distribution() -> None:
    chance = random.Random(1)
    values = [chance.gauss(3, 2) for _ in range(1000)]
    found = estimate(values)
    mean = sum(values) / 1000
    deviation = math.sqrt(sum((each - mean) ** 2 for each in values) / 999)
    half = 1.96 * deviation / math.sqrt(1000)
    assert found.mean == pytest.approx(mean)
    assert found.low == pytest.approx(mean - half, abs=0.01)
    assert found.high == pytest.approx(mean + half, abs=0.01)


def test_the_true_mean_lies_in_the_interval_about_as_often_as_it_says() -> None:
    chance = random.Random(2)
    held, samples = 0, times(100, 1000)
    for number in range(samples):
        found = estimate([float(chance.random() < 0.3) for _ in range(60)], name=str(number))
        held += found.low <= 0.3 <= found.high
    assert 0.90 <= held / samples <= 0.99


def test_the_same_values_have_the_same_interval() -> None:
    values = [0.0, 1.0, 1.0, 0.5, 0.0]
    assert estimate(values, name="a") == estimate(values, name="a")


def test_examples_of_one_cluster_are_no_independent_draws() -> None:
    values = [1.0] * 50 + [0.0] * 50
    alone = estimate(values)
    together = estimate(values, [0] * 25 + [1] * 25 + [2] * 25 + [3] * 25)
    assert together.mean == alone.mean
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_all_right_is_not_taken_for_certain() -> None:
    found = estimate([1.0] * 10)
    assert (found.mean, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.6915, abs=1e-4)  # Clopper-Pearson, 10 of 10
    none = estimate([0.0] * 10)
    assert (none.low, none.high) == (0.0, pytest.approx(0.3085, abs=1e-4))


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_nothing_has_no_mean(values: list[float]) -> None:
    found = estimate(values)
    assert found.count == 0
    assert math.isnan(found.mean)


def test_one_value_has_no_interval_and_nan_is_no_value() -> None:
    found = estimate([0.25, math.nan])
    assert (found.mean, found.count) == (0.25, 1)
    assert math.isnan(found.low)


def test_pairs_distinguish_what_means_alone_do_not() -> None:
    chance = random.Random(3)
    a = [chance.gauss(0, 10) for _ in range(100)]
    b = [each + 0.5 + chance.gauss(0, 0.5) for each in a]
    found = difference(a, b)
    assert found.estimate.mean == pytest.approx(0.5, abs=0.15)
    assert found.estimate.low > 0.3
    assert found.p < 0.001
    assert estimate(a).high > estimate(b).low
    assert found.better + found.worse + found.equal == 100


def test_no_difference_has_a_large_p() -> None:
    chance = random.Random(4)
    a = [float(chance.random() < 0.5) for _ in range(200)]
    b = [float(chance.random() < 0.5) for _ in range(200)]
    assert difference(a, b).p > 0.05
    same = difference(a, a)
    assert (same.p, same.equal, same.estimate.mean) == (1.0, 200, 0.0)
