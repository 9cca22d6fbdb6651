"""What has to be done again and again while a process serves: nothing that fails once may end it for good."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from memserver.errors import DatabaseError

logger = logging.getLogger(__name__)


async def repeat(action: Callable[[], Awaitable[None]], pause: float) -> None:
    """Do something for ever, with a pause after each time, whatever comes of it."""
    while True:
        task = asyncio.ensure_future(action())
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DatabaseError):
            logger.warning("%s Trying again in %.1f s.", error, pause)
        elif error is not None:
            logger.error("A fault of ours. Trying again in %.1f s.", pause, exc_info=error)
        await asyncio.sleep(pause)
