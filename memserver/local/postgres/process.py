"""The postmaster as a process: what its pid file says, whether it lives, starting, waiting for and stopping it.

A pid alone proves nothing: after kill -9 the pid file stays behind, its pid may be a zombie that pid 1
hasn't reaped (Postgres takes that for a live server and refuses to start), or belong to a stranger after
a reboot. So a postmaster counts only while its process runs, under the owner of the data directory.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memserver.local.postgres.account import PLAIN_ENVIRONMENT, SOCKET_NAME, Account

PROC = Path("/proc")
PORT = SOCKET_NAME.rpartition(".")[2]


@dataclass(frozen=True)
class Postmaster:
    """A live postmaster; `status` is its own word for its state: starting, ready, stopping."""

    pid: int
    status: str


def find_postmaster(data: Path) -> Postmaster | None:
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        pid = abs(int(lines[0]))
    except (OSError, ValueError, IndexError):
        return None
    if not _is_postgres(pid, data):
        return None
    return Postmaster(pid, lines[7].strip() if len(lines) > 7 else "starting")


def launch(command: list[str], log: Path, account: Account | None) -> int:
    """Start a server in a session of its own, as an orphan whose end is pid 1's business; returns its pid."""
    with log.open("ab") as log_file:
        shell = subprocess.run(
            ["/bin/sh", "-c", '(exec "$@") </dev/null >&2 & echo $!', "sh", *command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            cwd="/",
            env=PLAIN_ENVIRONMENT,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    return int(shell.stdout)


def wait_until_ready(data: Path, pid: int, timeout: float) -> bool:
    """Wait until the server takes connections; false if it ended or still recovers after the timeout."""

    def settled() -> bool:
        server = find_postmaster(data)
        return (server is not None and server.pid == pid and server.status == "ready") or not (
            _is_running(pid)
        )

    return _wait_for(settled, timeout) and _is_running(pid)


def wait_until_gone(pid: int, timeout: float) -> bool:
    """Wait for the end of a process, which need not be a child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):  # not Linux, or a kernel without it
        return _wait_for(lambda: not _is_running(pid), timeout)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    finally:
        os.close(descriptor)


def stop(server: Postmaster, patience: float) -> bool:
    """Stop a server: disconnect its clients and write all down; if that takes too long, just stop."""
    for request in (signal.SIGINT, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            os.kill(server.pid, request)
        if wait_until_gone(server.pid, patience):
            return True
    return False


def clear_leftovers(data: Path, socket_directory: Path) -> None:
    """Remove the lock files of a dead server; call it only where nobody else can be starting one.

    Postgres guards itself a second time, by the shared memory that is keyed to the data directory: while
    backends of the dead server still run, a new one refuses to start, with or without these files.
    """
    for path in (data / "postmaster.pid", socket_directory / f"{SOCKET_NAME}.lock"):
        path.unlink(missing_ok=True)


def pauses() -> Iterator[float]:
    """How long to wait between two looks: short at first, then a tenth of a second."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.5, 0.1)


def _wait_for(condition: Callable[[], bool], timeout: float) -> bool:
    end = time.monotonic() + timeout
    for pause in pauses():
        if condition():
            return True
        if time.monotonic() > end:
            break
        time.sleep(pause)
    return False


def _is_running(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    return _command_of(pid) is not None


def _is_postgres(pid: int, data: Path) -> bool:
    name = _command_of(pid)
    if name is None or not name.startswith("postgres"):
        return False
    if not PROC.joinpath("self").exists():
        return True
    try:
        if (PROC / str(pid)).stat().st_uid != data.stat().st_uid:
            return False
        return (PROC / str(pid) / "cwd").samefile(data)
    except (
        PermissionError
    ):  # root without CAP_SYS_PTRACE, as in most containers: name and owner must do
        return True
    except OSError:
        return False


def _command_of(pid: int) -> str | None:
    """The name of a running process's program; None if there is no such process or it is a zombie."""
    if PROC.joinpath("self").exists():
        try:
            text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        name, _, rest = text.partition("(")[2].rpartition(")")
        return None if rest.split()[0] in {"Z", "X"} else name
    answer = subprocess.run(
        ["ps", "-o", "stat=,comm=", "-p", str(pid)],
        check=False,
        capture_output=True,
        encoding="utf-8",
        env=PLAIN_ENVIRONMENT,
    ).stdout.split(maxsplit=1)
    if len(answer) < 2 or answer[0].startswith("Z"):
        return None
    return Path(answer[1].strip()).name
