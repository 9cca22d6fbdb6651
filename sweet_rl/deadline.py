"""The time that one call may take: what is done is kept, and the next call goes on."""

import math
import time
from dataclasses import dataclass

from memserver.errors import MemserverError

EXIT_STATUS = 3
"""Of a process whose time was over before all was done."""


class OutOfTime(MemserverError):
    """The time that was given is over, and not all is done. The same command goes on."""

    code = "out_of_time"


@dataclass(frozen=True, slots=True)
class Deadline:
    end: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        return None if math.isinf(self.end) else max(0.0, self.end - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.end

    def check(self, told: str) -> None:
        """Raise OutOfTime where it is over. `told`: what was being done."""
        if self.passed:
            raise OutOfTime(
                f"The time is over: {told}.", hint="What is done is kept; the same command goes on."
            )
