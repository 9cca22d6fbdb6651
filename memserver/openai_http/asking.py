"""Until when an endpoint is asked: known to whoever begins a turn, and needed where requests are sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

asked_until: ContextVar[float | None] = ContextVar("asked_until", default=None)


@contextmanager
def asking_until(end: float | None) -> Iterator[None]:
    """No request of this block waits beyond this time of the event loop before it is tried again."""
    token = asked_until.set(end)
    try:
        yield
    finally:
        asked_until.reset(token)
