"""Several engines as one endpoint: where an agent's requests go, what happens where one is down or too full."""

from collections import Counter

import pytest

from memserver.errors import ModelUnavailable
from memserver.openai_http.fleet import FEW, Fleet, pinned_to

AGENTS = [f"agent-{number}" for number in range(400)]


def fleet(*names: str, pins: bool = True) -> Fleet:
    return Fleet([(name, name) for name in names], pins=pins)


def homes(made: Fleet) -> dict[str, str]:
    found = {}
    for agent in AGENTS:
        with pinned_to(agent):
            found[agent] = made.order()[0].address
    return found


def test_an_engine_more_moves_only_its_share_and_every_process_agrees() -> None:
    before, after = homes(fleet("a", "b", "c")), homes(fleet("c", "a", "d", "b"))
    assert before == homes(fleet("b", "c", "a"))
    assert {after[agent] for agent in AGENTS if before[agent] != after[agent]} == {"d"}
    assert all(70 <= count <= 130 for count in Counter(after.values()).values())


def test_an_engine_that_is_much_fuller_than_the_others_gives_its_excess_to_the_next() -> None:
    made = fleet("a", "b")
    with pinned_to("somebody"):
        first, second = made.order()
        first.in_flight = FEW - 1
        assert made.order() == [first, second]
        first.in_flight = FEW
        assert made.order() == [second, first]
        second.in_flight = FEW  # all are as full: nothing is gained elsewhere
        assert made.order() == [first, second]


def test_without_pinning_the_least_busy_engine_is_next() -> None:
    made = fleet("a", "b", "c", pins=False)
    for engine, busy in zip(made.engines, (3, 1, 2), strict=True):
        engine.in_flight = busy
    with pinned_to("somebody"):
        assert [engine.address for engine in made.order()] == ["b", "c", "a"]


def test_one_lost_connection_leaves_an_engine_out_until_a_single_request_has_tried_it() -> None:
    now = 0.0
    made = Fleet([("a", "a"), ("b", "b")], clock=lambda: now)
    with pinned_to("somebody"):
        first, second = made.order()
        first.circuit.begin().record_failure(ModelUnavailable("gone"), lost=True)
        assert made.order() == [second]
        now = 60.0
        assert made.order() == [first, second]
        attempt = first.circuit.begin()
        assert made.order() == [second]  # while it is tried
        attempt.record_success()
        assert made.order() == [first, second]
        for engine in made.engines:
            engine.circuit.begin().record_failure(ModelUnavailable("gone"), lost=True)
        assert made.is_open
        with pytest.raises(ModelUnavailable, match="None of the model's engines"):
            made.order()
