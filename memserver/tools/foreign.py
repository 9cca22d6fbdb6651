"""Somebody else's code: whatever it does, the answer is a text or a ToolError, within its time.

A tool's function runs in a thread; an async tool in a task of its own, whose exception is read.
"""

import asyncio
import contextlib
import json
import logging
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date, datetime, time
from typing import Any

from pydantic_core import to_jsonable_python

from memserver.errors import MemserverError, ToolError, ToolProcessEnded
from memserver.foreign_code import outcome_of
from memserver.text import clean
from memserver.tools.shown import ToolResult, tool_result
from memserver.watchdog import in_marked_turn

logger = logging.getLogger(__name__)

MOST_THREADS = 64
"""Sync functions that run at a time. One that hangs keeps its thread, since Python can't end it."""
_threads = threading.BoundedSemaphore(MOST_THREADS)
_abandoned: set["asyncio.Task[ToolResult]"] = set()
"""Tasks of tools that were cancelled and have not yet."""


async def run_contained(
    name: str, work: Callable[[], Awaitable[object]], seconds: float
) -> ToolResult:
    """What a tool returns, as text and pictures; after so many seconds it is cancelled, and not waited for.

    Raises:
        ToolError: it raised, hung, or returned what is no text and no JSON.
        ToolProcessEnded: it had a process of its own, and ended it.
    """
    task = asyncio.create_task(in_marked_turn(_as_task(work)), name=f"tool {name}")
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _abandoned.add(task)
            task.add_done_callback(_forget)
    if not task.done():
        raise ToolError(
            f"It did not end within {seconds:g} seconds; whether it took effect is not known."
        )
    if task.cancelled():
        raise ToolError("It was cancelled by itself.")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, ToolProcessEnded):
        raise error
    if isinstance(error, MemserverError):
        raise ToolError(error.message) from error
    logger.warning("The tool %s failed.", name, exc_info=error)
    # Not f"{error}": a broken __str__ must not get out either.
    text = "".join(traceback.format_exception_only(error)).strip()
    raise ToolError(clean(text)) from error


def cut(text: str, limit: int) -> str:
    """A result as the model may have it; a note says that it was cut."""
    if len(text) <= limit:
        return text
    return (
        f"{text[:limit]}… [cut: a result may have {limit} characters, this one has {len(text)}; "
        "ask for less]"
    )


async def in_thread(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """Run it in a thread of its own: one that never ends keeps neither a pool nor the server from ending.

    Raises:
        ToolError: too many of them run or hang already.
    """
    if not _threads.acquire(blocking=False):
        raise ToolError(f"{MOST_THREADS} calls of Python functions run or hang already. Try later.")
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not ended.done():
            set_it(value)

    def run() -> None:
        result, error = outcome_of(work)
        _threads.release()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            if error is None:
                loop.call_soon_threadsafe(settle, ended.set_result, result)
            else:
                loop.call_soon_threadsafe(settle, ended.set_exception, _make_portable(error))

    threading.Thread(target=run, daemon=True, name="tool").start()
    return await ended


def as_text(result: object) -> str:
    """A result as the model reads it: text as it is, all else as JSON. Raises ToolError: it is no text and no JSON."""
    if result is None:
        return ""
    if isinstance(result, str):
        return clean(result)
    if isinstance(result, bytes | bytearray | memoryview):
        raise ToolError("It returned bytes, not text.")
    try:
        return clean(json.dumps(result, default=_plain, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(result).__name__
        raise ToolError(f"It returned a {kind} that is no JSON: {error}") from error


async def _as_task(work: Callable[[], Awaitable[object]]) -> ToolResult:
    try:
        result = await work()
        if result is None or isinstance(result, str):
            return ToolResult(as_text(result))
        made: ToolResult = await in_thread(lambda: tool_result(result, as_text))
        return made
    except (SystemExit, KeyboardInterrupt) as error:
        # From a task these would end the server.
        raise _make_portable(error) from error


def _plain(value: object) -> object:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Iterator | AsyncIterator):
        raise TypeError(f"a {type(value).__name__} can't be written as JSON; return a list")
    return to_jsonable_python(value)


def _make_portable(error: BaseException) -> BaseException:
    """What may be set on a future and raised again without ending more than the call."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return ToolError(f"{type(error).__name__}: {error}")


def _forget(task: "asyncio.Task[ToolResult]") -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio logs that nobody looked at it
