"""Waiting for a database that is away, instead of giving up: whatever needs it begins when it is there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from memserver.errors import DatabaseError, MemserverError

logger = logging.getLogger(__name__)

Opening = Callable[[], AbstractAsyncContextManager[object]]
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0


@asynccontextmanager
async def open_when_possible(
    opening: Opening,
    report: Callable[[MemserverError], None],
    passing: tuple[type[MemserverError], ...] = (DatabaseError,),
) -> AsyncIterator[None]:
    """Hold what `opening` opens: before the block if that works at once, else as soon as it does.

    Args:
        opening: called for each try.
        report: called for each try that failed.
        passing: errors that are waited for; another one in the first try ends the start.
    """
    waiting = _Waiting(opening, report, passing)
    task = asyncio.create_task(waiting.run())
    tried = asyncio.create_task(waiting.tried.wait())
    await asyncio.wait({task, tried}, return_when=asyncio.FIRST_COMPLETED)
    tried.cancel()
    if task.done():
        task.result()
    try:
        yield
    finally:
        waiting.ending.set()
        if not waiting.open:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Waiting:
    """One task opens, holds and closes: what is opened may insist on that."""

    def __init__(
        self,
        opening: Opening,
        report: Callable[[MemserverError], None],
        passing: tuple[type[MemserverError], ...],
    ) -> None:
        self.tried = asyncio.Event()
        self.ending = asyncio.Event()
        self.open = False
        self._opening = opening
        self._report = report
        self._passing = passing

    async def run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._opening():
                    self.open = True
                    self.tried.set()
                    await self.ending.wait()
                    return
            except MemserverError as error:
                if self.open or not (self.tried.is_set() or isinstance(error, self._passing)):
                    raise
                logger.warning("%s Trying again in %.1f s.", error, pause)
                self._report(error)
            self.tried.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
