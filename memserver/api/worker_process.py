"""The application of one of several processes that serve: it ends with the process that started it."""

import os
import signal
from multiprocessing import parent_process
from threading import Thread

from fastapi import FastAPI

from memserver.api.app import create_app
from memserver.settings import Settings


def create_worker_app(settings: Settings) -> FastAPI:
    """The application; without the main process it would hold the port, and nobody would replace or stop it."""
    if parent_process() is not None:
        Thread(target=_end_with_parent, daemon=True).start()
    return create_app(settings=settings)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
