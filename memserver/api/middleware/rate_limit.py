"""How often a key may ask: one token bucket for each, in this process alone."""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MOST_BUCKETS = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class RateLimit:
    """Token buckets: `burst` requests at once, then `per_minute`; 0 a minute means no limit.

    Each process counts by itself, without asking the database, so that of several each lets this much through.
    """

    def __init__(
        self, per_minute: int, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_minute / 60
        self._burst = burst
        self._clock = clock
        self._buckets: dict[Hashable, _Bucket] = {}

    def take(self, who: Hashable) -> int:
        """Count a request; 0 if it may pass, else the whole seconds after which one may."""
        if not self._per_second:
            return 0
        now = self._clock()
        bucket = self._buckets.get(who)
        if bucket is None:
            self._make_room(now)
            bucket = self._buckets[who] = _Bucket(self._burst, now)
        self._fill(bucket, now)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0
        return math.ceil((1 - bucket.tokens) / self._per_second)

    def _fill(self, bucket: _Bucket, now: float) -> None:
        grown = bucket.tokens + (now - bucket.at) * self._per_second
        bucket.tokens = min(self._burst, grown)
        bucket.at = now

    def _make_room(self, now: float) -> None:
        """Forget full buckets: one that is made again is the same."""
        if len(self._buckets) < MOST_BUCKETS:
            return
        for who, bucket in list(self._buckets.items()):
            self._fill(bucket, now)
            if bucket.tokens >= self._burst:
                del self._buckets[who]
