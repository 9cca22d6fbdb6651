"""An endpoint that keeps failing is left alone, tried again by one request, and asked again when it answers."""

import pytest

from memserver.errors import ModelError, ModelUnavailable
from memserver.openai_http.circuit import Attempt, Circuit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Outage:
    """A circuit, and what happens to it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.circuit = Circuit(failures=3, first_pause=2, longest_pause=5, clock=self.clock)

    def fails(self, times: int = 1) -> None:
        for _ in range(times):
            self.end(self.circuit.begin(), ModelUnavailable("No connection.", hint="Start it."))

    def answers(self) -> None:
        self.end(self.circuit.begin(), None)

    def end(self, attempt: Attempt, error: ModelError | None) -> None:
        if error is None:
            attempt.record_success()
        else:
            attempt.record_failure(error)
        attempt.end()

    def refused(self) -> bool:
        try:
            self.circuit.refuse_if_open()
        except ModelUnavailable:
            return True
        return False


@pytest.fixture
def outage() -> Outage:
    return Outage()


def test_it_opens_after_so_many_failures_in_a_row(outage: Outage) -> None:
    outage.fails(2)
    outage.answers()
    outage.fails(2)
    assert not outage.refused()
    outage.fails()
    assert outage.refused()
    with pytest.raises(ModelUnavailable):
        outage.circuit.begin()


def test_the_refusal_says_since_when_why_and_until_when(outage: Outage) -> None:
    outage.fails(3)
    outage.clock.now += 0.5
    error = outage.circuit.refusal()
    assert "not asked now" in error.message
    assert "failed since 20" in error.message
    assert "tried again in 1.5 s" in error.message
    assert error.message.endswith("The last error: No connection.")
    assert error.hint == "Start it."


def test_after_the_pause_one_request_tries_and_its_answer_closes_it(outage: Outage) -> None:
    outage.fails(3)
    outage.clock.now += 2
    assert "the next request tries it" in outage.circuit.describe()
    trying = outage.circuit.begin()
    assert outage.refused()
    assert "a try is under way" in outage.circuit.describe()
    outage.end(trying, None)
    assert not outage.circuit.is_open
    assert outage.circuit.describe() == ""
    outage.fails(2)
    assert not outage.circuit.is_open


def test_a_try_that_fails_doubles_the_pause_up_to_a_limit_and_an_answer_ends_that(
    outage: Outage,
) -> None:
    outage.fails(3)
    for pause in (2, 4, 5, 5):
        outage.clock.now += pause - 0.1
        assert outage.refused()
        outage.clock.now += 0.1
        outage.fails()
    outage.clock.now += 5
    outage.answers()
    outage.fails(3)
    outage.clock.now += 2
    assert not outage.refused()


def test_a_try_that_its_caller_gave_up_says_nothing_and_the_next_one_tries(
    outage: Outage,
) -> None:
    outage.fails(3)
    outage.clock.now += 2
    outage.circuit.begin().end()
    assert outage.circuit.is_open
    assert not outage.refused()
    outage.answers()
    assert not outage.circuit.is_open


def test_failures_of_requests_begun_before_it_opened_change_nothing(outage: Outage) -> None:
    late = [outage.circuit.begin() for _ in range(2)]
    outage.fails(3)
    outage.clock.now += 2
    trying = outage.circuit.begin()
    for attempt in late:
        outage.end(attempt, ModelUnavailable("Late."))
    assert outage.circuit.describe().endswith("a try is under way. The last error: No connection.")
    outage.end(trying, None)
    assert not outage.circuit.is_open


def test_an_answer_to_a_request_begun_before_it_opened_closes_it(outage: Outage) -> None:
    late = outage.circuit.begin()
    outage.fails(3)
    outage.end(late, None)
    assert not outage.circuit.is_open


def test_a_check_that_is_answered_closes_it_on_probation(outage: Outage) -> None:
    outage.fails(3)
    outage.circuit.record_check()
    assert not outage.refused()
    outage.fails()
    outage.clock.now += 3.9
    assert outage.refused()
    outage.clock.now += 0.1
    outage.answers()
    outage.fails(2)
    assert not outage.circuit.is_open


def test_a_check_that_is_answered_forgives_nothing_while_it_is_closed(outage: Outage) -> None:
    outage.fails(2)
    outage.circuit.record_check()
    outage.fails()
    assert outage.circuit.is_open
