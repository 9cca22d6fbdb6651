"""Where the tests of the embedded Postgres keep their clusters."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from memserver.local.postgres.process import find_postmaster, stop


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that other accounts may pass through, as pytest's tmp_path may not be."""
    path = Path(tempfile.mkdtemp(prefix="memserver-test-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    for pid_file in path.rglob("postmaster.pid"):
        if server := find_postmaster(pid_file.parent):
            stop(server, patience=10)
    shutil.rmtree(path)


@pytest.fixture
def root(home: Path) -> Path:
    return home / "postgres"
