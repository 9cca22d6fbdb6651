"""Turns by the length of the history: measured in alternating blocks, and judged by the worse figure."""

from benchmarks.long_history import BLOCK, Age, Talk, compare, ratio


def test_the_ratio_is_the_longest_to_the_shortest_by_the_worse_of_time_and_cpu() -> None:
    young, middle = Age(100, 10.0, 20.0, 5.0), Age(1000, 99.0, 99.0, 99.0)
    assert ratio([Age(10_000, 11.0, 90.0, 4.0), young, middle]) == 1.1
    assert ratio([young, middle, Age(10_000, 11.0, 90.0, 7.5)]) == 1.5


def test_agents_take_turns_in_blocks_and_each_ones_cpu_is_its_own() -> None:
    order: list[int] = []
    cpu = 0.0

    def talk(length: int, seconds: float) -> Talk:
        def turn() -> float:
            nonlocal cpu
            order.append(length)
            cpu += seconds / 2
            return seconds

        return Talk(length, turn)

    ages = compare([talk(100, 0.01), talk(10_000, 0.02)], lambda: cpu, range(2))
    assert order == [100] * BLOCK + [10_000] * 2 * BLOCK + [100] * BLOCK
    assert ages == [Age(100, 10.0, 10.0, 5.0), Age(10_000, 20.0, 20.0, 10.0)]
