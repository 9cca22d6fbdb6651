"""How long something that failed is left alone."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds that only ever grow."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 900.0
WORTH = 120
"""A pause is at least so many times as long as the failure took: little of anybody's time goes into waiting."""


class Patience:
    """Whether something may be tried: after a failure not for a while, which grows with each."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        """Make it; nothing has failed yet. `clock`: seconds that only ever grow."""
        self._clock = clock
        self._pause = 0.0
        self._next = clock()

    @property
    def over(self) -> bool:
        return self._clock() >= self._next

    @property
    def failing(self) -> bool:
        return self._pause > 0

    def failed(self, seconds: float = 0.0) -> None:
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        self._next = self._clock() + max(self._pause, WORTH * seconds)

    def succeeded(self) -> None:
        self._pause = 0.0
