"""A blocked event loop is noticed, and what holds it is in the log."""

import asyncio
import logging
import multiprocessing
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from memserver.watchdog import KEY_BYTES, Watchdog, in_marked_turn

SECONDS = 0.05
DEADLINE = 30
KEY, OTHER = b"a" * KEY_BYTES, b"b" * KEY_BYTES


class Heard(logging.Handler):
    """Hears the watchdog's words, in its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked, self.runs_again = threading.Event(), threading.Event()
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.said += record.getMessage()
        (self.blocked if record.levelno == logging.ERROR else self.runs_again).set()


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[tuple[Watchdog, Heard]]:
    logger, heard = logging.getLogger("memserver.watchdog"), Heard()
    logger.addHandler(heard)
    watchdog = Watchdog(SECONDS, folder)
    try:
        async with watchdog.running():
            yield watchdog, heard
    finally:
        logger.removeHandler(heard)


def hold_the_loop(heard: Heard) -> None:
    assert heard.blocked.wait(DEADLINE)


async def test_the_log_says_what_holds_the_loop_and_that_it_runs_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as (_, heard):
        hold_the_loop(heard)
        assert await asyncio.to_thread(heard.runs_again.wait, DEADLINE)
    assert "in hold_the_loop" in heard.said
    assert "it was blocked for" in heard.said


async def test_a_turn_that_held_the_loop_and_let_it_go_is_not_remembered(tmp_path: Path) -> None:
    async def turn(heard: Heard) -> str:
        await asyncio.sleep(0)
        hold_the_loop(heard)
        await asyncio.to_thread(heard.runs_again.wait, DEADLINE)
        return "done"

    async with watching(tmp_path) as (watchdog, heard):
        assert await watchdog.marked(KEY, turn(heard)) == "done"
        assert Watchdog(SECONDS, tmp_path).blocked_by(KEY) == 0
    assert os.listdir(tmp_path) == []


def block_for_good(folder: Path) -> None:
    """A process whose loop a turn blocks, by a task of its own; another turn waits meanwhile."""

    async def block() -> None:
        threading.Event().wait()

    async def turn() -> None:
        await asyncio.create_task(in_marked_turn(block()))

    async def run() -> None:
        watchdog = Watchdog(SECONDS, folder)
        async with watchdog.running():
            waiting = asyncio.create_task(watchdog.marked(OTHER, asyncio.Event().wait()))
            await asyncio.sleep(0)
            await asyncio.gather(waiting, watchdog.marked(KEY, turn()))

    asyncio.run(run())


def test_of_the_turns_of_a_killed_process_the_one_that_blocked_it_is_remembered(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=block_for_good, args=[tmp_path])
    process.start()
    watchdog = Watchdog(SECONDS, tmp_path)
    found = threading.Event()
    while not found.wait(SECONDS) and process.is_alive():
        if watchdog.blocked_by(KEY):
            found.set()
    process.kill()
    process.join()
    assert (watchdog.blocked_by(KEY), watchdog.blocked_by(OTHER)) == (1, 0)
    watchdog.forget(KEY)
    assert watchdog.blocked_by(KEY) == 0


async def test_a_marked_turn_ends_raises_and_is_cancelled_as_any_other(tmp_path: Path) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("it failed")

    async with watching(tmp_path) as (watchdog, _):
        with pytest.raises(ValueError, match="it failed"):
            await watchdog.marked(KEY, fail())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await watchdog.marked(KEY, asyncio.sleep(DEADLINE))
