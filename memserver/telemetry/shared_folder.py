"""The folder in which the workers of one server keep what they measure."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

_PREFIX = "memserver-metrics-"
_BEING_MADE = 60
"""Seconds: a folder younger than this may not be locked yet."""


@contextmanager
def shared_folder() -> Iterator[str]:
    """A folder of this process's own while the block runs. Those that killed servers left are removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), _locked(left):
            found = left.stat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _BEING_MADE:
                rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, _locked(Path(folder)):
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold it for ourselves; the kernel releases it with our process, which has no child that inherits it.

    Raises:
        OSError: another process holds it, or it is none of ours.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
