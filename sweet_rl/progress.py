"""How far something is, on stderr: a bar in a terminal; elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

Progress = Callable[[int, int], None]
"""Is called with how many steps (or states) of how many are done; also at the start, where a run resumes."""
LINE_SECONDS = 20


def unseen(done: int, total: int) -> None:
    """A Progress that shows nothing."""


@contextmanager
def show_progress(title: str) -> Iterator[Progress]:
    console, last = Console(stderr=True), 0.0
    if console.is_terminal:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(TextColumn("{task.description}"), *columns, console=console) as bars:
            bar = bars.add_task(title, total=None)
            yield lambda done, total: bars.update(bar, completed=done, total=total)
        return

    def print_now_and_then(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_SECONDS or done == total:
            last = now
            console.print(f"{title}: {done} of {total}")

    yield print_now_and_then
