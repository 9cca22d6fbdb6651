"""What the tests of the embedded Postgres share: other processes that use it, and looks into it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import memserver
from memserver.local.postgres.process import find_postmaster

UNSAFE = {"fsync": "off"}  # a killed process loses nothing by it, only a killed machine does

HOLDER = """
import sys
from pathlib import Path
from memserver.local.postgres.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off"})
server.acquire()
print(server.url(), flush=True)
sys.stdin.read()
print("stopped" if server.release() else "left running", flush=True)
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about root's privileges")


class Holder:
    """Another process that uses the server until it is asked to end or is killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def url(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        return self.process.communicate()[0].strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def holder(
    root: Path,
    *,
    python: Path | str = sys.executable,
    user: int | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[Holder]:
    with subprocess.Popen(
        [str(python), "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=environment,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    ) as process:
        yield Holder(process)
        process.kill()


def postmaster_of(root: Path) -> int:
    server = find_postmaster(root / "data")
    assert server is not None
    return server.pid


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def copy_launcher(target: Path) -> None:
    """What a process needs to run the launcher, except for the binaries; nothing else from the environment."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(memserver.__file__).parent, target / "memserver", ignore=ignored)
    metadata = target / "memserver-0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: memserver\nVersion: 0\n")
