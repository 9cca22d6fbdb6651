"""The processes that serve, of `serve --workers`."""

import logging
import os
import signal

from prometheus_client.multiprocess import mark_process_dead
from typing_extensions import override
from uvicorn.supervisors import Multiprocess

from memserver.telemetry.prometheus import SHARED_FOLDER

logger = logging.getLogger(__name__)


class Workers(Multiprocess):
    """uvicorn's, which replaces a worker that has died or hangs; the log says so."""

    @override
    def keep_subprocess_alive(self) -> None:
        before = list(self.processes)
        super().keep_subprocess_alive()
        for dead, new in zip(before, self.processes, strict=True):
            if new is not dead:
                if SHARED_FOLDER in os.environ:  # what it was doing is done by nobody now
                    mark_process_dead(dead.pid)
                logger.error(
                    "Worker process %s has died (%s); process %s takes its place.",
                    *(dead.pid, _how(dead.exitcode), new.pid),
                )


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
