"""When a turn has to be over, and what may be cut off then.

Only what waits for others is cut: the model, a tool that runs. What commits never is, so that a step is
either stored and told, or neither.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memserver.errors import TurnTimeout
from memserver.openai_http.client import retrying_until


class Deadline:
    """The end of a turn's time, which begins now."""

    def __init__(self, seconds: float | None) -> None:
        """Make it; None is no deadline."""
        self._seconds = seconds
        self._end = None if seconds is None else asyncio.get_running_loop().time() + seconds

    @asynccontextmanager
    async def cutting(self) -> AsyncIterator[None]:
        """Cut the block off when the time is over; don't begin it if it is.

        Raises:
            TurnTimeout: it was cut off, or not begun.
        """
        if self._end is not None and asyncio.get_running_loop().time() >= self._end:
            raise self._over()
        limit = asyncio.timeout_at(self._end)
        try:
            async with limit:
                with retrying_until(self._end):
                    yield
        except TimeoutError as error:
            if limit.expired():
                raise self._over() from error
            raise

    def _over(self) -> TurnTimeout:
        return TurnTimeout(
            f"The turn took longer than {self._seconds:g} seconds and was ended.",
            hint="What it had done stands. Is the model endpoint slow, or too many ask it at once? "
            "MEMSERVER_TURN_TIMEOUT is the limit.",
        )
