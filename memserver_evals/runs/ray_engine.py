"""Examples spread over a Ray cluster, for many thousands of them.

Each worker builds the task and the systems for itself, from a plain value that says which; only that and
the records travel. The first example of each system is played here, so that what all share (a collection
of documents) is made once. The files of the run are written here alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from typing_extensions import override

from memserver.errors import SetupError, install_extra
from memserver.messages import JsonObject
from memserver_evals.runs.engines import Engine, LocalEngine
from memserver_evals.runs.player import Done, Player
from memserver_evals.runs.records import Job, PlayedRecord

Opener = Callable[[JsonObject], AbstractAsyncContextManager[Player]]
"""Makes a player of a plain value; a function of a module, so that workers find it."""


class RayEngine(Engine):
    def __init__(
        self, opener: Opener, spec: JsonObject, here: Player, *, workers: int, at_once: int
    ) -> None:
        """Make it; Ray is started, or joined, by the first `play`.

        `at_once`: examples that are played at a time, over all of them.
        """
        self._opener = opener
        self._spec = spec
        self._here = here
        self._workers = workers
        self._each = max(1, at_once // workers)

    @override
    async def play(self, jobs: Sequence[Job]) -> AsyncGenerator[Done]:
        first = {job.system: job for job in reversed(jobs)}
        async for done in LocalEngine(self._here, 1).play(list(first.values())):
            yield done
        left = [job for job in jobs if first[job.system] != job]
        if not left:
            return
        ray = _ray()
        started = not ray.is_initialized()
        if started:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
        try:
            async for done in self._spread(ray, left):
                yield done
        finally:
            if started:
                ray.shutdown()

    async def _spread(self, ray: Any, jobs: Sequence[Job]) -> AsyncGenerator[Done]:  # noqa: ANN401 - Ray has no types
        made = ray.remote(num_cpus=0, max_concurrency=self._each + 1, scheduling_strategy="SPREAD")
        worker = made(_Worker)
        actors = [worker.remote(self._opener, self._spec) for _ in range(self._workers)]
        waiting = iter(jobs)
        running: dict[asyncio.Future[Any], Any] = {}
        try:
            for _ in range(self._each):
                for actor in actors:
                    _give(actor, waiting, running)
            while running:
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for future in ended:
                    actor = running.pop(future)
                    line, seconds = _result(future)
                    yield Done(PlayedRecord.read(line), seconds)
                    _give(actor, waiting, running)
        finally:
            for future in running:
                future.cancel()
            for actor in actors:
                ray.kill(actor)


class _Worker:
    def __init__(self, opener: Opener, spec: JsonObject) -> None:
        self._opened = opener(spec)
        self._player: Player | None = None
        self._opening: asyncio.Lock | None = None

    async def play(self, system: str, example: str) -> tuple[str, float]:
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._player is None:
                self._player = await self._opened.__aenter__()
        done = await self._player.play(Job(system, example))
        return done.record.line(), done.seconds


def _give(actor: Any, waiting: Any, running: dict[asyncio.Future[Any], Any]) -> None:  # noqa: ANN401
    job = next(waiting, None)
    if job is not None:
        running[asyncio.ensure_future(_awaited(actor.play.remote(job.system, job.example)))] = actor


async def _awaited(reference: Any) -> Any:  # noqa: ANN401
    return await reference


def _result(future: asyncio.Future[Any]) -> tuple[str, float]:
    line, seconds = future.result()
    return str(line), float(seconds)


def _ray() -> Any:  # noqa: ANN401
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError("The package ray is not installed.", hint=install_extra("ray")) from error
    return ray
