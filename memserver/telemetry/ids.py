"""Which request, tenant, agent, turn or job the running code works for, by a context variable: lines of the log say it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

Ids = Mapping[str, object]
_ids: ContextVar[Ids] = ContextVar("_ids", default={})  # noqa: B039 - never changed

current = _ids.get


def add(**more: object) -> None:
    """Say more of what the running task works for."""
    _ids.set({**_ids.get(), **more})


@contextmanager
def bound(**ids: object) -> Iterator[None]:
    """While the block runs the code works for this, and for nothing that was said before."""
    token = _ids.set(ids)
    try:
        yield
    finally:
        _ids.reset(token)
