"""A time limit, and files of records that are made piece by piece: what is done is kept, and the next call resumes.

Records go to a file beside the final one, in whatever order they come. When all are there they are put in
order and the final file appears at once, so that a reader sees all of it.
"""

import math
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Generic, TypeVar

from memserver.errors import MemserverError
from memserver_evals.runs.engines import as_they_end
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
        in_time = takewhile(lambda _: not deadline.passed, missing)
        async with aclosing(as_they_end(in_time, make, at_once)) as ended:
            with closing(AppendOnly(self._growing, synced=False)) as file:
                made = len(keys) - len(missing)
                async for record in ended:
                    await file.append(record.model_dump_json())
                    self.done[self._key(record)] = record
                    made += 1
                    progress(made, len(keys))
        if any(key not in self.done for key in keys):
            deadline.check(f"{len(self.done)} of {len(keys)} are done in {self._path}")
        records = [self.done[key] for key in keys]
        write_file(self._path, records)
        self._growing.unlink()
        return records
