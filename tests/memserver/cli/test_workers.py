"""The supervisor of several worker processes: real ones, looked at as often as the test says."""

import os
import signal
import socket
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors.multiprocess import SIGNALS

from memserver.cli.workers import LOOKS_TO_ANSWER, LOOKS_TO_START, Workers

WITHIN = 60
HOURS = 10_000
"""Seconds that uvicorn's own supervisor would wait for an answer: none of these tests ends if somebody does."""


def app() -> Starlette:
    return Starlette()


@pytest.fixture
def workers() -> Iterator[Workers]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, factory=True, workers=2, timeout_worker_healthcheck=HOURS, log_config=None
    )
    made = Workers(config, [listening])
    try:
        made.init_processes()
        yield made
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for process in made.processes:
            process.kill()
            process.join()
        listening.close()


def look(workers: Workers, times: int = 1) -> list[int | None]:
    """Look at the workers, as uvicorn has it done every half second; their pids after it."""
    for _ in range(times):
        workers.keep_subprocess_alive()
    return [process.pid for process in workers.processes]


def see_start(workers: Workers) -> list[int]:
    """Have both started and seen to have, with an answer that the next look finds."""
    for process in workers.processes:
        assert process.wait_until_ready(WITHIN)
    for _ in range(2):
        look(workers)
        for process in workers.processes:
            assert process.parent_conn.poll(WITHIN)
    return [process.pid or 0 for process in workers.processes]


def stop(pid: int) -> None:
    """Have a worker stand still, so that it can't answer what it is asked from now on."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def test_a_worker_that_dies_before_it_has_answered_is_replaced_at_the_next_look(
    workers: Workers,
) -> None:
    first, second = see_start(workers)
    stop(first)
    assert look(workers, 2) == [first, second]
    os.kill(first, signal.SIGKILL)
    workers.processes[0].process.join(WITHIN)
    new, same = look(workers)
    assert new not in (first, second)
    assert same == second


def test_a_worker_that_hangs_is_replaced_after_its_time_and_one_that_starts_gets_more(
    workers: Workers,
) -> None:
    first, second = see_start(workers)
    for pid in (first, second):
        stop(pid)
    left = [looked for looked in range(1, 2 * LOOKS_TO_ANSWER) if look(workers) == [first, second]]
    assert len(left) == LOOKS_TO_ANSWER
    # Two new ones by now, which can't have started in no time.
    starting = look(workers)
    assert not {first, second} & set(starting)
    assert look(workers, LOOKS_TO_ANSWER + 1) == starting
    assert look(workers, LOOKS_TO_START)[0] != starting[0]


def test_no_worker_is_looked_at_once_the_server_ends(workers: Workers) -> None:
    first, second = see_start(workers)
    os.kill(first, signal.SIGKILL)
    workers.processes[0].process.join(WITHIN)
    workers.should_exit.set()
    assert look(workers) == [first, second]
