"""A terminal for a test: runs a command in it, types, and waits for what should appear."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|[\x01\x02\r]")
SECONDS = 60


@dataclass
class Terminal:
    """What was printed so far is in `raw`; `seen` counts how much of the plain text was waited for."""

    process: "subprocess.Popen[bytes]"
    master: int
    raw: bytearray = field(default_factory=bytearray)
    seen: int = 0

    @property
    def text(self) -> str:
        """Without colours and the like."""
        return ESCAPES.sub("", self.raw.decode(errors="replace"))

    def wait_for(self, text: str) -> str:
        """What is printed up to and with this text, from where the last wait ended."""
        deadline = time.monotonic() + SECONDS
        while (at := self.text.find(text, self.seen)) < 0:
            assert self.read(deadline), f"{text!r} did not come, but:\n{self.text[self.seen :]}"
        start, self.seen = self.seen, at + len(text)
        return self.text[start : self.seen]

    def read(self, deadline: float) -> bool:
        """More output; False at its end or when the time is over."""
        ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
        try:
            piece = os.read(self.master, 65536) if ready else b""
        except OSError:  # how Linux tells that the other side is closed
            piece = b""
        self.raw += piece
        return bool(piece)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self, until: str) -> str:
        """Press Ctrl-C, and once more where nothing follows, until this text appears.

        CPython loses a signal that comes between readline's prompt and its waiting for a key.
        """
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.type("\x03")
            while self.text.find(until, self.seen) < 0:
                if not self.read(time.monotonic() + 5):
                    break
            else:
                break
        return self.wait_for(until)

    def end(self, key: str = "") -> int:
        """Wait until the command has ended, pressing a key for it; its exit status."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            self.type(key)
            while self.read(time.monotonic() + 5):
                pass
        return self.process.wait(timeout=SECONDS)


@contextmanager
def terminal(folder: Path, *arguments: str, **environment: str) -> Iterator[Terminal]:
    """`memserver` with these arguments, in a terminal of 80 columns."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "memserver", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=plain(folder)
        | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
        | environment,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(slave)
    shown = Terminal(process, master)
    try:
        yield shown
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(master)


def piped(folder: Path, typed: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The same without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "memserver", *arguments],
        input=typed,
        cwd=folder,
        env=plain(folder),
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )


@contextmanager
def piping(folder: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """The same while it runs, with nothing to read; Ctrl-C reaches it also where our parent ignores it."""
    with subprocess.Popen(
        [sys.executable, "-m", "memserver", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=plain(folder),
        encoding="utf-8",
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as command:
        yield command


def plain(folder: Path) -> dict[str, str]:
    """An environment without the caller's settings."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": path,
        "HOME": str(folder),
        "MEMSERVER_HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
    }


def _take_terminal() -> None:
    """Make the terminal the process's own, so that Ctrl-C reaches it, also where our parent ignores it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
