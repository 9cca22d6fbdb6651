"""Intervals over seeds and tasks."""

import math
from random import Random

import pytest

from memserver_evals.scoring.statistics import estimate
from sweet_rl.intervals import estimate_nested, t_interval


def test_one_seed_is_the_bootstrap_over_tasks() -> None:
    values = [Random(7).random() for _ in range(50)]
    assert estimate_nested({1: values}, name="x") == estimate(values, name="x")


def test_seeds_that_differ_widen_the_interval_and_tasks_that_differ_do() -> None:
    chance = Random(1)
    tasks = [chance.random() for _ in range(200)]
    alike = estimate_nested(dict.fromkeys(range(3), tasks), name="x")
    apart = estimate_nested(
        {seed: [value + shift for value in tasks] for seed, shift in enumerate((-0.3, 0, 0.3))},
        name="x",
    )
    flat = estimate_nested({seed: [0.5 + seed / 100] * 200 for seed in range(3)}, name="x")
    assert alike.mean == pytest.approx(apart.mean)
    assert apart.high - apart.low > 4 * (alike.high - alike.low)
    # the same tasks in each seed: three seeds know no more of tasks than one
    one = estimate(tasks, name="x")
    assert alike.high - alike.low == pytest.approx(one.high - one.low, rel=0.1)
    assert (flat.low, flat.high) == pytest.approx((0.5, 0.52))


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    chance, covered = Random(3), 0
    for number in range(12):
        tasks = [chance.gauss(0, 1) for _ in range(40)]
        seeds = {
            seed: [task + shift + chance.gauss(0, 0.5) for task in tasks]
            for seed, shift in enumerate(chance.gauss(0, 0.1) for _ in range(12))
        }
        found = estimate_nested(seeds, name=str(number))
        covered += found.low <= 0 <= found.high
    assert 9 <= covered <= 12


def test_what_is_always_the_same_has_the_exact_interval_and_nothing_has_none() -> None:
    never = estimate_nested({1: [0.0] * 100, 2: [0.0] * 100})
    assert (never.mean, never.low) == (0, 0)
    assert 0.03 < never.high < 0.04
    assert math.isnan(estimate_nested({}).mean)


def test_a_t_interval_of_three_seeds_is_wider_than_their_range() -> None:
    found = t_interval([0.858 - 0.852, 0.871 - 0.836, 0.909 - 0.833])
    assert (found.low, found.high) == pytest.approx((-0.048, 0.126), abs=5e-4)
    assert math.isnan(t_interval([0.5]).low)


def test_tasks_of_a_family_are_drawn_together() -> None:
    families = [number // 50 for number in range(300)]
    values = {seed: [float(family % 2) for family in families] for seed in range(3)}
    apart, together = (estimate_nested(values, kinds, name="x") for kinds in (None, families))
    assert apart.mean == together.mean == 0.5
    assert together.high - together.low > 5 * (apart.high - apart.low)
    assert math.isnan(estimate_nested(values, [0] * 300).low), "one family says nothing of others"
