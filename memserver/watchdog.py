"""Notices that the event loop is blocked, logs what holds it, and remembers which turn it was.

A thread looks at a beat of the loop's. Where C code holds the interpreter's lock, so that no thread of ours
runs, a timer of CPU time has faulthandler write the stack of the main thread. (Its own timer writes those of all
threads, and may crash where they run meanwhile.) A turn that was taken up before is marked while it runs, in a file that
outlives a killed process: so the next process knows whether this turn had blocked it.
"""

import asyncio
import faulthandler
import logging
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, TypeVar

from typing_extensions import override

logger = logging.getLogger(__name__)

T = TypeVar("T")
KEY_BYTES = 24
_BLOCKED = KEY_BYTES
_HEADER_BYTES = 64
_NOBODY = bytes(KEY_BYTES)
_FRAMES = 20
_PATIENCE = 3
_KEPT_SECONDS = 86_400
Mark = Callable[[bool], None]
_mark: ContextVar[Mark | None] = ContextVar("_mark", default=None)


class Watchdog:
    def __init__(self, seconds: float, folder: Path) -> None:
        """A loop that answers nothing for so many seconds is blocked; `folder`, for marks of turns, is shared by a machine's processes."""
        self._seconds = seconds
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._box: mmap.mmap | bytearray = bytearray(_HEADER_BYTES)
        self._beat = 0.0
        self._stop = threading.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._stop.clear()
        beating = asyncio.create_task(self._keep_beating(), name="watchdog")
        self._beat = time.monotonic()
        _write_stacks_to(sys.__stderr__)
        watcher = threading.Thread(
            target=self._watch, args=[threading.get_ident()], name="watchdog", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            beating.cancel()
            self._stop.set()
            watcher.join()
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self._close()

    async def marked(self, key: bytes, work: Coroutine[Any, Any, T]) -> T:
        """What a turn's work returns; while it runs, the file says so. `key` names the turn."""
        self._open()

        def mark(runs: bool) -> None:
            self._box[:KEY_BYTES] = key if runs else _NOBODY

        token = _mark.set(mark)
        try:
            return await in_marked_turn(work)
        finally:
            _mark.reset(token)

    def blocked_by(self, key: bytes) -> int:
        """How many other processes of this machine this turn has blocked, most of which are dead."""
        own = self._file.name if self._file else None
        return sum(_is_blocked_by(path, key) for path in self._folder.glob("*") if str(path) != own)

    def forget(self, key: bytes) -> None:
        for path in self._folder.glob("*"):
            if _is_blocked_by(path, key):
                path.unlink(missing_ok=True)

    def _open(self) -> None:
        if self._file is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                    path.unlink()
        path = self._folder / f"{os.getpid()}-{time.time_ns()}"
        self._file = path.open("x+b", buffering=0)
        self._file.write(bytes(_HEADER_BYTES))
        self._box = mmap.mmap(self._file.fileno(), _HEADER_BYTES)
        _write_stacks_to(self._file)

    def _close(self) -> None:
        if self._file is not None:
            _write_stacks_to(sys.__stderr__)
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)

    async def _keep_beating(self) -> None:
        while True:
            self._beat = time.monotonic()
            signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE * self._seconds)
            await asyncio.sleep(self._seconds / 2)

    def _watch(self, loop_thread: int) -> None:
        blocked_since = 0.0
        while not self._stop.wait(self._seconds / 2):
            beat = self._beat
            if blocked_since and beat != blocked_since:
                logger.warning(
                    "The event loop runs again; it was blocked for %.1f s.", beat - blocked_since
                )
                blocked_since = 0.0
                self._settle()
            elif not blocked_since and time.monotonic() - beat > self._seconds:
                blocked_since = beat
                self._box[_BLOCKED] = 1
                frame = sys._current_frames().get(loop_thread)
                stack = "".join(traceback.format_stack(frame)[-_FRAMES:]) if frame else ""
                logger.error(
                    "The event loop is blocked for more than %g s. What holds it:\n%s",
                    *(self._seconds, stack),
                )

    def _settle(self) -> None:
        """Nothing was killed: the file needs to know nothing of it."""
        self._box[_BLOCKED] = 0
        if self._file is not None:
            self._file.truncate(_HEADER_BYTES)
            self._file.seek(_HEADER_BYTES)


async def in_marked_turn(work: Coroutine[Any, Any, T]) -> T:
    """What some work returns, a part of the turn that is marked, if one is; for a task that a turn starts."""
    mark = _mark.get()
    return await (work if mark is None else _Marked(work, mark))


class _Marked(Generator[Any, Any, T]):
    """Work that is marked while it computes, and not while it waits."""

    def __init__(self, work: Coroutine[Any, Any, T], mark: Mark) -> None:
        self._work = work
        self._mark = mark

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    @override
    def send(self, value: Any, /) -> Any:
        self._mark(True)
        try:
            return self._work.send(value)
        finally:
            self._mark(False)

    @override
    def throw(self, *error: Any) -> Any:
        self._mark(True)
        try:
            return self._work.throw(*error)
        finally:
            self._mark(False)

    @override
    def close(self) -> None:
        self._work.close()


def _write_stacks_to(file: IO[Any] | None) -> None:
    """Where the timer's signal writes the stack; from the first time on, so that the signal never ends the process."""
    faulthandler.register(signal.SIGVTALRM, file=file or sys.stderr, all_threads=False)


def _is_blocked_by(path: Path, key: bytes) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    blocked = len(content) > _HEADER_BYTES or content[_BLOCKED : _BLOCKED + 1] == b"\1"
    return content.startswith(key) and blocked
