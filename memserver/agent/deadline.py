"""When a turn has to be over, and what may be cut off then.

Only what waits for others is cut: the model, a tool that runs. What commits never is, so that a step is
either stored and reported, or neither.
"""

import asyncio
from types import TracebackType

from memserver.errors import TurnTimeout
from memserver.openai_http.client import retrying_until


class Deadline:
    """The end of a turn's time, which begins now; without seconds it has none."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.end = None if seconds is None else asyncio.get_running_loop().time() + seconds

    def cutting(self) -> "_Cut":
        """Cut the block off when the time is over; don't begin it if it is.

        Raises:
            TurnTimeout: it was cut off, or not begun.
        """
        return _Cut(self)


class _Cut:
    """A class, and no generator: it is entered several times in each step."""

    __slots__ = ("_deadline", "_limit", "_retrying")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._limit = asyncio.timeout_at(deadline.end)
        self._retrying = retrying_until(deadline.end)

    async def __aenter__(self) -> None:
        end = self._deadline.end
        if end is not None and asyncio.get_running_loop().time() >= end:
            raise self._over()
        await self._limit.__aenter__()
        self._retrying.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._retrying.__exit__(None, None, None)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise self._over() from late

    def _over(self) -> TurnTimeout:
        return TurnTimeout(
            f"The turn took longer than {self._deadline.seconds:g} seconds and was ended.",
            hint="What it had done stands. Is the model endpoint slow, or too many ask it at once? "
            "MEMSERVER_TURN_TIMEOUT is the limit.",
        )
