"""The folder of a run: what it is of, and what was played, so that a killed run resumes where it was.

`manifest.json` says what is run; another run is refused the folder. `played.jsonl` has a line for each
example that was played, with every prompt and answer. A line is on the disk before the example counts as
done, and half a line at the end, which a kill leaves, is dropped. When all is played the lines are put
into the run's order. `timings.jsonl` has what differs from run to run: when it was started, by which command,
and the seconds of each example.
"""

import asyncio
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from memserver.errors import Conflict, InvalidInput
from memserver.messages import JsonObject
from memserver_evals.runs.records import Job, PlayedRecord, dump

T = TypeVar("T")

MANIFEST, PLAYED, TIMINGS = "manifest.json", "played.jsonl", "timings.jsonl"


class AppendOnly:
    """A file of lines that only grows, each on the disk before `append` returns."""

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        """Open it, made where it is not there. What lies after the last whole line is cut off.

        `synced`: False for lines that may be lost with the machine, though not with the process.
        """
        self._file = _cut_to_whole_lines(path)
        self._synced = synced
        self._writing = asyncio.Lock()

    async def append(self, line: str) -> None:
        async with self._writing:
            await asyncio.to_thread(self._write, f"{line}\n".encode())

    def close(self) -> None:
        self._file.close()

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._file.flush()
        if self._synced:
            os.fsync(self._file.fileno())


@dataclass
class RunFolder:
    """An open folder; `done` is what has been played."""

    path: Path
    manifest: JsonObject
    done: dict[Job, PlayedRecord]
    _played: AppendOnly = field(repr=False)
    _timings: BinaryIO = field(repr=False)

    async def add(self, record: PlayedRecord, seconds: float) -> None:
        """Keep what was played. What is there already stays as it is."""
        if record.job in self.done:
            return
        await self._played.append(record.line())
        self.done[record.job] = record
        timing = {
            "system": record.job.system,
            "example": record.job.example,
            "seconds": round(seconds, 3),
            "at": _now().isoformat(timespec="seconds"),
        }
        self._time(timing)

    def note_start(self, command: str) -> None:
        """Keep when playing began, by which command, and where."""
        machine = f"{platform.platform()}, {os.cpu_count()} CPUs"
        began = _now().isoformat(timespec="seconds")
        self._time({"began": began, "command": command, "machine": machine})

    def _time(self, line: JsonObject) -> None:
        self._timings.write(f"{dump(line)}\n".encode())
        self._timings.flush()

    def put_in_order(self, jobs: Sequence[Job]) -> list[PlayedRecord]:
        """Once all is played: the records in the run's order, and the file in that order too."""
        records = [self.done[job] for job in jobs]
        write_whole(self.path / PLAYED, "".join(f"{record.line()}\n" for record in records))
        return records


@dataclass(frozen=True, slots=True)
class Course:
    """When a run was played, and how: `seconds` without the time between a stop and the next start."""

    began: datetime
    ended: datetime
    seconds: float
    commands: tuple[str, ...]
    machines: tuple[str, ...]


def read_course(path: Path) -> Course | None:
    """What `timings.jsonl` says of a run; None of one by a version that kept less."""
    lines = read_lines(path / TIMINGS, json.loads) if (path / TIMINGS).exists() else []
    starts = [line for line in lines if "began" in line]
    if not starts or "began" not in lines[0]:
        return None
    spans: list[tuple[datetime, datetime]] = []
    for line in lines:
        if "began" in line:
            began = datetime.fromisoformat(line["began"])
            spans.append((began, began))
        else:
            spans[-1] = spans[-1][0], datetime.fromisoformat(line["at"])
    return Course(
        spans[0][0],
        spans[-1][1],
        sum((ended - began).total_seconds() for began, ended in spans),
        tuple(dict.fromkeys(line["command"] for line in starts)),
        tuple(dict.fromkeys(line["machine"] for line in starts)),
    )


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def open_run(path: Path, manifest: JsonObject) -> Iterator[RunFolder]:
    """The folder of a run, new or to be resumed; nobody else may have it open.

    Raises Conflict: it is the folder of another run, or another process has it; InvalidInput: it holds
    something else, or a line of it is damaged.
    """
    path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        _check_manifest(path, manifest)
        played = AppendOnly(path / PLAYED)
        try:
            with (path / TIMINGS).open("ab") as timings:
                yield RunFolder(path, manifest, _read_played(path / PLAYED), played, timings)
        finally:
            played.close()


def read_manifest(path: Path) -> JsonObject:
    """What a folder is of. Raises InvalidInput."""
    try:
        found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path} is no folder of a run: {error}",
            hint="Name a folder that `memserver eval` made.",
        ) from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{path / MANIFEST} is damaged.")
    return found


def read_lines(path: Path, parse: Callable[[str], T]) -> list[T]:
    """The lines of a file, each parsed. Raises InvalidInput: one can't be; it names file and line."""
    found: list[T] = []
    with path.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found.append(parse(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput(f"{path}, line {number}: {error}") from error
    return found


def write_whole(path: Path, text: str) -> None:
    """Write a file at once: a reader sees the old one or the new one, also after a kill."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A folder for this process alone while the block runs. Raises Conflict: another one has it."""
    with (path / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(
                f"Another process works in {path}.", hint="Wait for it, or name another folder."
            ) from error
        yield


def _check_manifest(path: Path, manifest: JsonObject) -> None:
    """Write it into a new folder; in an old one it must be the same, or of more examples. Raises Conflict."""
    if not (path / MANIFEST).exists():
        if (path / PLAYED).exists():
            raise InvalidInput(f"{path} has a {PLAYED}, but no {MANIFEST}.")
        _write_manifest(path, manifest)
        return
    old = read_manifest(path)
    new = json.loads(json.dumps(manifest))
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if changed and set(changed) <= {"limit", "examples"}:
        before, after = set(old["examples"]), set(new["examples"])
        if not before <= after:
            raise Conflict(
                f"{path} has {len(before)} examples, {len(before - after)} of which are not among the "
                f"{len(after)} of this command: a run only grows.",
                hint="Raise --limit or leave it out, or name another folder.",
            )
        _write_manifest(path, manifest)
    elif changed:
        what = "; ".join(
            f"{name} was {_short(old.get(name))}, now {_short(new.get(name))}" for name in changed
        )
        raise Conflict(
            f"{path} is the folder of another run: {what}.",
            hint="Use the same options, or name another folder.",
        )


def _write_manifest(path: Path, manifest: JsonObject) -> None:
    write_whole(path / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _read_played(path: Path) -> dict[Job, PlayedRecord]:
    done: dict[Job, PlayedRecord] = {}
    for record in read_lines(path, PlayedRecord.read):
        done.setdefault(record.job, record)
    return done


def _cut_to_whole_lines(path: Path) -> BinaryIO:
    file = path.open("ab+")
    end = file.seek(0, os.SEEK_END)
    start = end
    while start > 0:
        step = min(start, 1 << 16)
        file.seek(start - step)
        found = file.read(step).rfind(b"\n")
        if found >= 0:
            start = start - step + found + 1
            break
        start -= step
    if start < end:
        file.truncate(start)
    file.seek(0, os.SEEK_END)
    return file
