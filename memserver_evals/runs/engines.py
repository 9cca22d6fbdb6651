"""Where examples are played: in this process, or on a Ray cluster. The results are the same."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Protocol, TypeVar

from typing_extensions import override

from memserver_evals.runs.player import Done, Player
from memserver_evals.runs.records import Job

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    def play(self, jobs: Sequence[Job]) -> AsyncGenerator[Done]:
        """Play them all; what is done first comes first. A failure ends it, and whatever still runs."""


class LocalEngine(Engine):
    """This process, which mostly waits for the model."""

    def __init__(self, player: Player, at_once: int) -> None:
        self._player = player
        self._at_once = at_once

    @override
    async def play(self, jobs: Sequence[Job]) -> AsyncGenerator[Done]:
        async with aclosing(as_they_end(jobs, self._player.play, self._at_once)) as ended:
            async for done in ended:
                yield done


async def as_they_end(
    given: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int
) -> AsyncGenerator[R]:
    """What becomes of each, so many at a time, as they end. A failure cancels what still runs."""
    waiting = iter(given)
    running: set[asyncio.Future[R]] = set()
    try:
        while True:
            for each in islice(waiting, at_once - len(running)):
                running.add(asyncio.ensure_future(work(each)))
            if not running:
                return
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
