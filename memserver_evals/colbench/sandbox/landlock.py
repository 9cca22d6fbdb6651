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
_READ = _READ_FILE | _READ_DIR


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 where it has none."""
    try:
        return call(libc.syscall, _CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def shared_rules(trees: Iterable[str], hidden: Iterable[str], writable: Iterable[str]) -> int:
    """An open ruleset for many processes, each of which narrows down further where it may write.

    Raises OSError: the kernel refused.
    """
    ruleset = _ruleset()
    real = {os.path.realpath(path) for path in hidden}
    for tree in trees:
        _allow_but(ruleset, os.path.realpath(tree), real)
    for path in writable:
        _allow(ruleset, path, _all_rights() & ~_EXECUTE)
    return ruleset


def _allow_but(ruleset: int, path: str, hidden: set[str]) -> None:
    """Landlock knows no exception, so the folders on the way to what is hidden can only be listed."""
    if not any(f"{other}/".startswith(f"{path}/") for other in hidden):
        _allow(ruleset, path, _READ)
    elif path not in hidden:
        _allow(ruleset, path, _READ_DIR)
        for name in os.listdir(path):
            entry = os.path.join(path, name)
            if not os.path.islink(entry):
                _allow_but(ruleset, entry, hidden)


def restrict_files(shared: int, writable: Iterable[str]) -> None:
    """From now on only what the rules name can be read, and of that only these be written; TCP is closed.

    Raises OSError: the kernel refused.
    """
    ruleset = _ruleset()
    _allow(ruleset, "/", _READ)
    for path in writable:
        _allow(ruleset, path, _all_rights() & ~_EXECUTE)
    call(libc.prctl, 38, 1, 0, 0, 0)
    for layer in (shared, ruleset):  # what both allow
        call(libc.syscall, _RESTRICT, layer, 0)
    os.close(ruleset)


def _all_rights() -> int:
    return (1 << _RIGHTS.get(landlock_version(), 16)) - 1


def _ruleset() -> int:
    version = landlock_version()
    fields = [
        _all_rights(),
        *([_TCP] if version >= 4 else []),
        *([_SCOPES] if version >= 6 else []),
    ]
    head = struct.pack(f"={len(fields)}Q", *fields)
    return call(libc.syscall, _CREATE, head, len(head), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, opened))
            call(libc.syscall, _ADD, ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(opened)
