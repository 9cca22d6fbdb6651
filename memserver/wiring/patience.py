"""Waiting for a database that is away, instead of giving up: whatever needs it begins when it is there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from memserver.errors import DatabaseError, MemserverError

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0


@asynccontextmanager
async def open_when_possible(
    opening: Callable[[], AbstractAsyncContextManager[object]],
    report: Callable[[MemserverError], None],
    passing: tuple[type[MemserverError], ...] = (DatabaseError,),
) -> AsyncIterator[None]:
    """Hold what `opening` opens: before the block if that works at once, else as soon as it does.

    Each failed try is reported; an error that is not `passing` ends the start, if it is the first try's.
    """
    tried, ending, is_open = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        """One task opens, holds and closes: what is opened may insist on that."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with opening():
                    is_open.set()
                    tried.set()
                    await ending.wait()
                    return
            except MemserverError as error:
                if is_open.is_set() or not (tried.is_set() or isinstance(error, passing)):
                    raise
                logger.warning("%s Trying again in %.1f s.", error, pause)
                report(error)
            tried.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    holding = asyncio.create_task(hold())
    first_try = asyncio.create_task(tried.wait())
    await asyncio.wait({holding, first_try}, return_when=asyncio.FIRST_COMPLETED)
    first_try.cancel()
    if holding.done():
        holding.result()
    try:
        yield
    finally:
        ending.set()
        if not is_open.is_set():
            holding.cancel()
        with suppress(asyncio.CancelledError):
            await holding
