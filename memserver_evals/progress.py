"""Bars of what takes long; what is deep within a run draws one beside the run's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as Bar
from rich.text import Text
from typing_extensions import override

_shown: ContextVar[Progress | None] = ContextVar("shown", default=None)


class _Rate(ProgressColumn):
    @override
    def render(self, task: Bar) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{60 * speed:.1f}/min")


@contextmanager
def bars(console: Console) -> Iterator[None]:
    """Show on this console every `bar` of the block, also those of tasks that it starts."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        token = _shown.set(progress)
        try:
            yield
        finally:
            _shown.reset(token)


@contextmanager
def bar(what: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A bar for `total` pieces of work, and what to call with how many more are done.

    Outside `bars` nothing is shown.
    """
    progress = _shown.get()
    if progress is None:
        yield lambda _: None
        return
    task = progress.add_task(what, total=total, completed=done)
    yield lambda more: progress.advance(task, more)
