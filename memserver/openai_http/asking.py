"""Until when an endpoint is asked: known to whoever begins a turn, and needed where requests are sent."""

from contextvars import ContextVar

asked_until: ContextVar[float | None] = ContextVar("asked_until", default=None)
"""The time of the event loop after which no request is tried again."""
