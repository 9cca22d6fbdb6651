"""Plays one example through one system, again where something was down."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from memserver.errors import MemserverError
from memserver_evals.runs.records import Job, PlayedRecord
from memserver_evals.systems.failing import OUTAGES, is_answer
from memserver_evals.task import Played, System, Task

PAUSES = (1.0, 5.0, 20.0)
"""Seconds before an example is played again after an outage; then the run is given up, to be resumed."""


@dataclass(frozen=True, slots=True)
class Done:
    record: PlayedRecord
    seconds: float


class Player:
    def __init__(
        self, task: Task[Any], systems: Mapping[str, System], pauses: Sequence[float] | None = None
    ) -> None:
        self._task = task
        self._systems = systems
        self._examples = {example.id: example for example in task.examples()}
        self._pauses = PAUSES if pauses is None else pauses

    async def play(self, job: Job) -> Done:
        """Play it. Raises MemserverError: what was down stays down, or the run is set up wrongly."""
        for pause in self._pauses:
            try:
                return await self._try(job)
            except OUTAGES:
                await asyncio.sleep(pause)
        return await self._try(job)

    async def _try(self, job: Job) -> Done:
        began = monotonic()
        example = self._examples[job.example]
        try:
            played = await self._task.play(example, self._systems[job.system])
        except MemserverError as error:
            if not is_answer(error):
                raise
            played = Played((), {"error": error.code})
        return Done(PlayedRecord(job, played), monotonic() - began)
