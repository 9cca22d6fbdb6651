"""Keeps this process from all files but a few, by the kernel's Landlock, which needs no rights of root.

What it doesn't keep from: whether a path exists, and its size and times, can still be asked. Source:
landlock(7).
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress

from memserver_evals.colbench.sandbox.system import call, libc

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights on files a version knows; later ones know no more."""
_TCP, _SCOPES = 0b11, 0b11


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 where it has none."""
    try:
        return call(libc.syscall, _CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def restrict_files(version: int, readable: Iterable[str], writable: Iterable[str]) -> None:
    """From now on only these trees and files can be opened; TCP is closed as well where it can be.

    Raises:
        OSError: the kernel refused.
    """
    rights = (1 << _RIGHTS.get(version, 16)) - 1
    fields = [rights, *([_TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    head = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = call(libc.syscall, _CREATE, head, len(head), 0)
    for paths, allowed in ((readable, _READ_FILE | _READ_DIR), (writable, rights & ~_EXECUTE)):
        for path in paths:
            with suppress(FileNotFoundError):
                _allow(ruleset, path, allowed)
    call(libc.prctl, 38, 1, 0, 0, 0)
    call(libc.syscall, _RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, opened))
        call(libc.syscall, _ADD, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)
