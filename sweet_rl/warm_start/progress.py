"""A progress bar on stderr, for work that takes minutes."""

from typing import Self

from rich.console import Console
from rich.progress import Progress as Bar


class Progress:
    def __init__(self, title: str, total: int) -> None:
        self._bar = Bar(console=Console(stderr=True))
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, by: int = 1) -> None:
        self._bar.advance(self._task, by)
