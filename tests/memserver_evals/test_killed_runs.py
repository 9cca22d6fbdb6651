"""Runs that are killed, again and again, end as an unbroken one does: byte for byte."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memserver.testing.scripted_rules import search_then_echo
from tests.memserver_evals.support import endpoints, lines
from tests.support.nightly import NIGHTLY, times
from tests.support.server import OneDatabase
from tests.support.servers import temporary_folder, wait_for

SAME = (
    "manifest.json",
    "played.jsonl",
    "examples.jsonl",
    "results.json",
    "scores.png",
    "by-level.png",
)
KILLS = times(2, 10)
EACH = times(3, 8)
"""Examples of each of the five levels."""
EXAMPLES = 2 * 5 * EACH


def command(out: Path, database: OneDatabase) -> list[str]:
    return [
        *(sys.executable, "-m", "memserver", "eval", "nested-kv"),
        *("--system", "memserver", "--system", "full", "--set", f"each={EACH}", "--set", "pairs=6"),
        *("--out", str(out), "--database-url", database.superuser, "--at-once", "3"),
    ]


def environment(settings: dict[str, str]) -> dict[str, str]:
    named = {f"MEMSERVER_{name.upper()}": value for name, value in settings.items()}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": settings["home"], "LC_ALL": "C.UTF-8", **named}


def played(out: Path) -> int:
    path = out / "played.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start(out: Path, database: OneDatabase, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(out, database),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        **more,
    )


@pytest.mark.skipif(not NIGHTLY, reason="takes half a minute: make nightly")
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_run_that_is_killed_again_and_again_has_the_same_files_as_an_unbroken_one(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(20)
    stops = sorted(chance.sample(range(1, EXAMPLES), KILLS))
    with (
        temporary_folder() as home,
        endpoints(search_then_echo, monkeypatch, home, summary="It is none.") as settings,
    ):
        own = environment(settings)
        unbroken = start(tmp_path / "unbroken", database, env=own, cwd=home)
        output, _ = unbroken.communicate()
        assert unbroken.returncode == 0, output
        killed = tmp_path / "killed"
        for stop in stops:
            process = start(killed, database, env=own, cwd=home)
            reached = wait_for(lambda: played(killed) >= stop or process.poll() is not None, 600)  # noqa: B023
            assert reached
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert process.returncode in (-signal.SIGKILL, 0)
        last = start(killed, database, env=own, cwd=home)
        output, _ = last.communicate()
        assert last.returncode == 0, output
    for name in SAME:
        assert (killed / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes(), name
    rows = lines(killed / "played.jsonl")
    assert len({(row["system"], row["example"]) for row in rows}) == len(rows) == EXAMPLES
