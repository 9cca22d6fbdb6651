"""What commands print to: people, in a terminal or through a pipe."""

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from memserver.errors import MemserverError

console = Console(highlight=False, soft_wrap=True, markup=False)
NARROWEST = 26
"""What a column of sentences is at least wide."""

SHOWN_EVERY = 20
"""Seconds between two lines about one step where there is no terminal."""


@contextmanager
def show_progress() -> Iterator[Callable[[str], None]]:
    """Takes what something does, as often as one likes: a live line in a terminal, else a line now and then."""
    begun = shown = time.monotonic()
    status = Status("", console=console, refresh_per_second=4)
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
    print(f"memserver: {error}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)


def print_json(value: Mapping[str, object] | Sequence[object]) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    sentences: Collection[str] = (),
    title: str = "",
    empty: str = "There are none.",
) -> None:
    """Print rows so that nothing is cut off, however narrow the terminal is.

    Where they don't fit beside each other, values are printed below each other. A pipe has any width.
    Texts of the columns in `sentences` may be wrapped; `empty` is said, on stderr, where there are no rows.
    """
    if not rows:
        print(empty, file=sys.stderr)
        return
    widths = [
        max(cell_len(line) for cell in column for line in (cell.splitlines() or [""]))
        for column in zip(titles, *rows, strict=True)
    ]
    least = [
        min(width, NARROWEST) if name in sentences else width
        for name, width in zip(titles, widths, strict=True)
    ]
    frame = 3 * len(titles) + 1
    if console.is_terminal and frame + sum(least) > console.width:
        _print_blocks(titles, rows, title)
        return
    table = Table(title=title or None, title_justify="left", title_style="bold")
    for name, width in zip(titles, least, strict=True):
        table.add_column(name, min_width=width, no_wrap=name not in sentences, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if console.is_terminal:
        console.print(table, soft_wrap=False)
    else:
        width = max(frame + sum(widths), cell_len(title))
        Console(highlight=False, markup=False, width=width).print(table)


def _print_blocks(titles: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    if title:
        console.print(Text(title, style="bold"))
    for first, *rest in rows:
        console.print(Text(first or "-", style="bold"))
        block = Table.grid(padding=(0, 2))
        block.add_column(no_wrap=True, style="dim")
        block.add_column(overflow="fold")
        for name, value in zip(titles[1:], rest, strict=True):
            if value:
                block.add_row(f"  {name}", Text(value))
        console.print(block, soft_wrap=False)
