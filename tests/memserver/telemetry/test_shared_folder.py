"""The folder of the workers' measurements is gone with its server, or with the start of the next one."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memserver.telemetry.shared_folder import shared_folder

HOLD = """
from memserver.telemetry.shared_folder import shared_folder
with shared_folder() as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def another_server(temporary: Path) -> Iterator[tuple[Path, "subprocess.Popen[str]"]]:
    """One that runs for long, by its folder's time."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        (folder / "gauge_1.db").touch()
        os.utime(folder, (0, 0))
        yield folder, process
        process.kill()


def test_a_killed_servers_folder_is_removed_at_the_next_start_and_no_running_ones(
    temporary: Path,
) -> None:
    with another_server(temporary) as (running, _), another_server(temporary) as (left, killed):
        killed.kill()
        killed.wait()
        assert left.exists()
        with shared_folder() as own:
            assert sorted(temporary.iterdir()) == sorted([running, Path(own)])
        assert list(temporary.iterdir()) == [running]


def test_what_only_looks_like_a_servers_folder_stays(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    os.utime(elsewhere, (0, 0))
    (temporary / "memserver-metrics-link").symlink_to(elsewhere)
    (temporary / "memserver-metrics-file").touch()
    (temporary / "memserver-metrics-young").mkdir()
    before = set(temporary.iterdir())
    with shared_folder() as own:
        assert set(temporary.iterdir()) == {*before, Path(own)}
    assert set(temporary.iterdir()) == before
