"""What is done as soon as the server is asked to end: the ASGI server says so only when its running requests have had their time."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def before_the_end(action: Callable[[], None]) -> Iterator[None]:
    """Do something in this loop at the signal to end, before what the ASGI server does at it; in its thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    servers = {number: signal.getsignal(number) for number in _ENDING}
    ours = {number: handler for number, handler in servers.items() if callable(handler)}

    def end(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(action)
        ours[signal.Signals(number)](number, frame)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in ours.items():
            if signal.getsignal(number) is end:
                signal.signal(number, handler)
