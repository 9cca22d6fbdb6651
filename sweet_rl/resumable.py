"""A time limit, and files of records that are made piece by piece: what is done is kept, and the next call resumes.

Records go to a file beside the final one, in whatever order they come. When all are there they are put in
order and the final file appears at once, so that whoever sees it sees all of it.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from memserver.errors import MemserverError
from memserver_evals.runs.run_folder import AppendOnly, read_lines
from sweet_rl.progress import Progress
from sweet_rl.trajectories import Record, write_file

EXIT_STATUS = 3
"""Of a process whose time was over before all was done."""
K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Record)


class OutOfTime(MemserverError):
    """The time that was given is over, and not all is done. The same command resumes."""

    code = "out_of_time"


@dataclass(frozen=True, slots=True)
class Deadline:
    end: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        return None if math.isinf(self.end) else max(0.0, self.end - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.end

    def check(self, what: str) -> None:
        """Raise OutOfTime where it is over. `what`: that was being done."""
        if self.passed:
            raise OutOfTime(
                f"The time is over: {what}.", hint="What is done is kept; the same command resumes."
            )


class ResumableJsonl(Generic[K, R]):
    def __init__(self, path: Path, kind: type[R], key: Callable[[R], K]) -> None:
        self._path, self._kind, self._key = path, kind, key
        self._growing = path.with_suffix(".part.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done: dict[K, R] = {}
        if self._growing.exists():
            AppendOnly(self._growing).close()  # half a line at the end is cut off
            for record in read_lines(self._growing, kind.model_validate_json):
                self.done[key(record)] = record

    async def fill(
        self,
        keys: Sequence[K],
        make: Callable[[K], Awaitable[R]],
        *,
        at_once: int,
        deadline: Deadline,
        progress: Progress,
    ) -> list[R]:
        """Make the records that are missing, several at a time, and then the final file, in this order."""
        missing = [key for key in keys if key not in self.done]
        progress(len(keys) - len(missing), len(keys))
        waiting, made = iter(missing), 0
        file = AppendOnly(self._growing, synced=False)
        try:
            running: set[asyncio.Task[R]] = set()
            try:
                while True:
                    while (
                        len(running) < at_once
                        and not deadline.passed
                        and (key := next(waiting, None)) is not None
                    ):
                        running.add(asyncio.ensure_future(make(key)))
                    if not running:
                        break
                    ended, running = await asyncio.wait(
                        running, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in ended:
                        record = task.result()
                        await file.append(record.model_dump_json())
                        self.done[self._key(record)] = record
                    made += len(ended)
                    progress(len(keys) - len(missing) + made, len(keys))
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        finally:
            file.close()
        if any(key not in self.done for key in keys):
            deadline.check(f"{len(self.done)} of {len(keys)} are done in {self._path}")
        records = [self.done[key] for key in keys]
        write_file(self._path, records)
        self._growing.unlink()
        return records
