"""A Postgres server of a test's own: roles belong to a whole server, so the shared one won't do."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from memserver.local.postgres.embedded import EmbeddedPostgres


@pytest.fixture
def fresh_server() -> Iterator[EmbeddedPostgres]:
    home = Path(tempfile.mkdtemp(prefix="memserver-test-", dir="/tmp"))
    home.chmod(0o711)
    with EmbeddedPostgres(home / "postgres", settings={"fsync": "off"}) as server:
        yield server
    shutil.rmtree(home)
