"""A circuit breaker: an endpoint that keeps failing is left alone for a while.

Nothing here waits: a request while the circuit is open is refused at once, and the first one after the pause is let
through to try. Not from a library: those of PyPI that know asyncio let everybody through after the pause, or have pauses
of one length, or count a cancelled call as a failure.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from memserver.errors import ModelError, ModelUnavailable

logger = logging.getLogger(__name__)

FAILURES = 5
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 30.0
"""Seconds. A restart of the endpoint breaks many requests at once, so the first pause is short."""


class Circuit:
    """Whether an endpoint is asked, by how the latest requests ended."""

    def __init__(
        self,
        *,
        failures: int = FAILURES,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
        name: str = "The model's endpoint",
        lost_at_once: bool = False,
    ) -> None:
        """Make a closed one.

        So many `failures` in a row, without an answer between them, open it; with `lost_at_once` a lost connection or a 503
        alone does. The pause, in seconds, doubles with each try that fails. `name` is what people read.
        """
        self._most = failures
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._clock = clock
        self._name = name
        self._lost_at_once = lost_at_once
        self._streak = 0
        self._period = 0
        self._pause = 0.0
        self._next_try: float | None = None
        self._trying = False
        self._failing_since = 0.0
        self._last: ModelError | None = None

    @property
    def is_open(self) -> bool:
        return self._next_try is not None

    @property
    def refuses(self) -> bool:
        """Whether it is open and a try is under way, or not due yet."""
        return self._next_try is not None and (self._trying or self._clock() < self._next_try)

    def refuse_if_open(self) -> None:
        """Refuse, unless the circuit is closed or it is time for a try.

        Raises:
            ModelUnavailable: it says since when the endpoint fails, how, and when the next try is.
        """
        if self.refuses:
            raise self.refusal()

    def refusal(self) -> ModelUnavailable:
        hint = self._last.hint if self._last else ""
        return ModelUnavailable(f"{self._name} is not asked now. {self.describe()}", hint=hint)

    def describe(self) -> str:
        """What is known of the outage, for people to read; empty while there is none."""
        if self._next_try is None or self._last is None:
            return ""
        since = datetime.now(UTC) - timedelta(seconds=self._clock() - self._failing_since)
        wait = self._next_try - self._clock()
        if self._trying:
            when = "a try is under way"
        else:
            when = f"it is tried again in {wait:.1f} s" if wait > 0 else "the next request tries it"
        last = self._last.message
        return f"It has failed since {since:%Y-%m-%dT%H:%M:%SZ}; {when}. The last error: {last}"

    def begin(self) -> "Attempt":
        """Let a request through, which then says how it ended. Raises as `refuse_if_open` does."""
        self.refuse_if_open()
        self._trying = self.is_open
        return Attempt(self, self._period, is_try=self._trying)

    def record_check(self) -> None:
        """The endpoint answered a check: it is asked again, and one more failure opens the circuit."""
        if self.is_open:
            self._close(streak=self._most - 1)

    def record_success(self) -> None:
        """The endpoint answered a request, whenever that was begun: it is not down."""
        if self.is_open:
            self._close(streak=0)
        self._streak = 0
        self._pause = 0.0

    def record_failure(self, period: int, error: ModelError, *, lost: bool = False) -> None:
        """A request failed; one begun before the circuit last opened or closed says nothing new."""
        if period != self._period:
            return
        if self._streak == 0:
            self._failing_since = self._clock()
        self._streak += 1
        self._last = error
        if self.is_open or self._streak >= self._most or (lost and self._lost_at_once):
            self._open()

    def release_try(self) -> None:
        """The try ended and showed nothing: the next request is the try."""
        self._trying = False

    def _open(self) -> None:
        self._pause = min(max(self._first_pause, 2 * self._pause), self._longest_pause)
        self._next_try = self._clock() + self._pause
        self._trying = False
        self._period += 1
        logger.warning("%s is not asked for %.1f s. %s", self._name, self._pause, self.describe())

    def _close(self, *, streak: int) -> None:
        self._next_try = None
        self._trying = False
        self._streak = streak
        self._period += 1
        logger.warning("%s answers again.", self._name)


class Attempt:
    def __init__(self, circuit: Circuit, period: int, *, is_try: bool) -> None:
        self._circuit = circuit
        self._period = period
        self._undecided = is_try
        self.has_answered = False

    def record_success(self) -> None:
        if not self.has_answered:
            self.has_answered = True
            self._undecided = False
            self._circuit.record_success()

    def record_failure(self, error: ModelError, *, lost: bool = False) -> None:
        self._undecided = False
        self._circuit.record_failure(self._period, error, lost=lost)

    def end(self) -> None:
        """The request is over; one that was given up by its caller shows nothing."""
        if self._undecided:
            self._undecided = False
            self._circuit.release_try()
