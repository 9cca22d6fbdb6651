"""A process with a log that ends with us, and all of its own processes with it; and what a server on the loopback needs."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memserver.local.engine import supervise

HOST = "127.0.0.1"
_GRACE = 10.0
_LAST_LINES = 15


@dataclass(frozen=True)
class LoggedProcess:
    child: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(
        cls, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> "LoggedProcess":
        """Start a command, whose output is added to a log. Raises OSError."""
        held = (sys.executable, "-I", supervise.__file__, str(os.getpid()), f"{_GRACE:g}")
        with log.open("ab") as file:
            child = subprocess.Popen(
                [*held, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        return cls(child, log)

    def ended(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self.child.poll()

    def last_lines(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join([*text.splitlines()[-_LAST_LINES:], f"Its log is {self.log}."])

    def dismiss(self) -> None:
        """Have it end, and don't wait for that: several end faster together."""
        self.child.terminate()

    def stop(self) -> None:
        """End it and all its processes; blocks until they are gone, seconds at most."""
        self.child.terminate()
        try:
            self.child.wait(_GRACE + 2)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)  # what the supervisor held ends with it
            self.child.wait()


def put_aside(log: Path) -> None:
    """Make room for a new log; the one before it is kept."""
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_healthy(port: int, seconds: float) -> bool:
    """Whether the server at a port of ours says so, within a time."""
    connection = http.client.HTTPConnection(HOST, port, timeout=seconds)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
