"""The processes that serve, of `serve --workers`."""

import logging
import os
import signal
from socket import socket

from prometheus_client.multiprocess import mark_process_dead
from typing_extensions import override
from uvicorn.config import STARTUP_FAILURE, Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from memserver.telemetry.prometheus import SHARED_FOLDER

START_SECONDS = 30
"""What a worker has to start: on a busy machine it takes more than five seconds."""
LOOKS_TO_START = START_SECONDS * 2
"""uvicorn has us look at the workers every half second. In looks, since a supervisor that stood still itself has made none."""
LOOKS_TO_ANSWER = 5 * 2
"""After that many without an answer a worker that has started hangs, and is killed."""

logger = logging.getLogger(__name__)


class Workers(Multiprocess):
    """uvicorn's, which replaces a worker that has died or hangs; the log says so.

    Nobody is waited for here, while uvicorn's waits for each worker's answer in turn: what dies meanwhile, and the signal to
    end, would be missed for as long as a worker may hang.
    """

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        super().__init__(config, sockets)
        self._started: set[Process] = set()
        self._unanswered: dict[Process, int] = {}
        """How often each worker was looked at since it was asked for a sign."""

    @override
    def keep_subprocess_alive(self) -> None:
        for place, process in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if not self._is_well(process):
                self._replace(place, process)

    def _is_well(self, process: Process) -> bool:
        if not process.process.is_alive():
            return False
        while process.parent_conn.poll():
            if process.parent_conn.recv():
                self._started.add(process)
            self._unanswered.pop(process, None)
        if process not in self._unanswered:
            process.parent_conn.send(b"ping")
        looks = self._unanswered.get(process, -1) + 1
        self._unanswered[process] = looks
        return looks < (LOOKS_TO_ANSWER if process in self._started else LOOKS_TO_START)

    def _replace(self, place: int, dead: Process) -> None:
        dead.kill()  # unless it has died by itself
        dead.join()
        self._started.discard(dead)
        self._unanswered.pop(dead, None)
        if SHARED_FOLDER in os.environ:  # what it was doing is done by nobody now
            mark_process_dead(dead.pid)
        if dead.exitcode == STARTUP_FAILURE:  # as the next one's start would
            logger.error("Worker process %s can't start; the server ends.", dead.pid)
            self.should_exit.set()
            return
        new = Process(self.config, self.sockets)
        new.start()
        self.processes[place] = new
        logger.error(
            "Worker process %s has died (%s); process %s takes its place.",
            *(dead.pid, _how(dead.exitcode), new.pid),
        )


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
