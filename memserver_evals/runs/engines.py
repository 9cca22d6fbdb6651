"""Where examples are played: in this process, or on a Ray cluster. The results are the same."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from typing_extensions import override

from memserver_evals.runs.player import Done, Player
from memserver_evals.runs.records import Job


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
        waiting = iter(jobs)
        running: set[asyncio.Task[Done]] = set()
        try:
            while True:
                while len(running) < self._at_once and (job := next(waiting, None)):
                    running.add(asyncio.create_task(self._player.play(job)))
                if not running:
                    return
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
