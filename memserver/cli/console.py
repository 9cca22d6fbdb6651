"""What commands print to: people, in a terminal or through a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from memserver.errors import MemserverError

console = Console(highlight=False, soft_wrap=True, markup=False)

SHOWN_EVERY = 20
"""Seconds between two lines about one step where there is no terminal."""


@contextmanager
def showing() -> Iterator[Callable[[str], None]]:
    """Takes what something does, as often as one likes: a live line in a terminal, else a line now and then."""
    begun = shown = time.monotonic()
    status = Status("", console=console)
    if console.is_terminal:
        status.start()

    def show(doing: str) -> None:
        nonlocal shown
        now = time.monotonic()
        line = f"{now - begun:.0f} s  {doing[:100]}"
        status.update(Text(line))
        if not console.is_terminal and now - shown >= SHOWN_EVERY:
            shown = now
            console.print(f"    {line}")

    try:
        yield show
    finally:
        status.stop()


def say_error(error: MemserverError) -> None:
    """An error as a person reads it."""
    print(f"memserver: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
