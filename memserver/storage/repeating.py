"""What is done beside other work: again and again, where nothing that fails once may end it for good; or once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from memserver.errors import DatabaseError

logger = logging.getLogger(__name__)

CANCELLED_AGAIN = 0.5
"""Seconds after which what still runs is cancelled again."""


async def repeat(action: Callable[[], Awaitable[None]], pause: float) -> None:
    """Do something again and again, with a pause after each time, also when it fails."""
    while True:
        task = asyncio.ensure_future(action())
        try:
            await asyncio.wait([task])
        finally:
            await end(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DatabaseError):
            logger.warning("%s Trying again in %.1f s.", error, pause)
        elif error is not None:
            logger.error("A fault of ours. Trying again in %.1f s.", pause, exc_info=error)
        await asyncio.sleep(pause)


@asynccontextmanager
async def run_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something for as long as the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end(task)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they have ended.

    Once is not always enough: a cancellation that meets a connection's end comes out as the connection's error. One that
    comes from outside meanwhile is raised when they have ended.
    """
    interrupted: asyncio.CancelledError | None = None
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=CANCELLED_AGAIN)
        except asyncio.CancelledError as error:
            interrupted = error
    await asyncio.gather(*tasks, return_exceptions=True)
    if interrupted is not None:
        raise interrupted
