"""The token buckets: a burst, then so many a minute, each caller by itself."""

from memserver.api.middleware import rate_limit
from memserver.api.middleware.rate_limit import RateLimit


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_after_the_given_time_and_not_before_one_more_may_pass() -> None:
    clock = Seconds()
    limit = RateLimit(per_minute=6, burst=2, clock=clock)
    assert [limit.take("a") for _ in range(3)] == [0, 0, 10]
    assert limit.take("b") == 0
    clock.now = 9.5
    assert limit.take("a") == 1
    clock.now = 10
    assert [limit.take("a"), limit.take("a")] == [0, 10]


def test_who_rests_may_ask_at_once_again_and_no_more_than_that() -> None:
    clock = Seconds()
    limit = RateLimit(per_minute=60, burst=3, clock=clock)
    for _ in range(2):
        assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 1]
        clock.now += 3600


def test_no_limit_is_no_limit() -> None:
    limit = RateLimit(per_minute=0, burst=1)
    assert {limit.take("a") for _ in range(1000)} == {0}


def test_what_is_remembered_is_bounded_and_forgets_nobody_who_asked_too_often() -> None:
    clock = Seconds()
    limit = RateLimit(per_minute=6, burst=1, clock=clock)
    for number in range(rate_limit.MOST_BUCKETS - 1):
        limit.take(number)
    clock.now = 9
    limit.take("often")
    clock.now = 11
    limit.take("new")
    assert len(limit._buckets) == 2
    assert limit.take("often") == 8
