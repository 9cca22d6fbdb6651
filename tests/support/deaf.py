"""Work that loses a cancellation, as a library's may."""

import asyncio


async def deaf(heard: list[str]) -> None:
    """Takes its first cancellation for an error, as a connection does that is closed at that moment."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            if len(heard) > 1:
                raise
