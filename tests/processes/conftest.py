"""A folder for the servers of one test, and the scripted model beside them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memserver.local.postgres.process import find_postmaster, stop
from tests.support.processes import CONTEXT_WINDOW
from tests.support.servers import ServerProcess, scripted_model, temporary_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path
        for pid_file in path.rglob("postmaster.pid"):
            if left := find_postmaster(pid_file.parent):
                stop(left, patience=10)


@pytest.fixture
def echo(folder: Path) -> Iterator[ServerProcess]:
    """A model that repeats what the user said."""
    with scripted_model(folder, context_window=CONTEXT_WINDOW) as process:
        yield process
