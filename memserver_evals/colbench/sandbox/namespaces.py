"""Namespaces of the Linux kernel: a network without a way out, process ids and mounts of one's own.

An ordinary user gets them through a user namespace, where that is allowed; a container often forbids it.
Source: namespaces(7), user_namespaces(7).
"""

import contextlib
import errno
import os
from pathlib import Path

from memserver_evals.colbench.sandbox.system import call, libc

_MOUNTS, _HOST, _IPC, _USER = 0x20000, 0x4000000, 0x8000000, 0x10000000
_PIDS, _NETWORK = 0x20000000, 0x40000000
_SET_DUMPABLE, _DROP_FROM_BOUNDS, _DEATH_SIGNAL = 4, 24, 1
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _RECURSIVE, _PRIVATE = 2, 4, 8, 0x4000, 0x40000
_CAPABILITIES_3 = 0x20080522


def enter_namespaces() -> bool:
    """Leave the network, IPC and mounts of the machine; the next child has process ids of its own.

    Whether that is allowed here.
    """
    user, group = os.getuid(), os.getgid()
    libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # after a change of user, /proc/self is root's otherwise
    try:
        call(libc.unshare, _USER | _NETWORK | _IPC | _MOUNTS | _HOST | _PIDS)
        with contextlib.suppress(FileNotFoundError):  # older kernels don't ask for it
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        call(libc.mount, None, b"/", None, _RECURSIVE | _PRIVATE, None)
    except OSError:
        return False
    return True


def new_processes_and_mounts() -> None:
    """The next child is the first process of a space of its own; it dies with all others in there.

    Raises OSError: it isn't allowed.
    """
    call(libc.unshare, _PIDS | _MOUNTS)


def mount_memory(folder: str, size: int, files: int) -> None:
    """Put an empty file system of so many bytes and files, held in memory, on a folder.

    Raises OSError: it isn't allowed.
    """
    flags = _NO_SUID | _NO_DEVICES | _NO_PROGRAMS
    for options in (f"size={size},mode=700,nr_inodes={files}", f"size={size},mode=700"):
        try:
            call(libc.mount, b"tmpfs", folder.encode(), b"tmpfs", flags, options.encode())
        except OSError as error:
            if error.errno != errno.EINVAL:  # gVisor counts no files
                raise
        else:
            return
    raise OSError(errno.EINVAL, "no file system in memory can be mounted")


def keep_from_new_capabilities() -> None:
    """No right of root that is once given up comes back to this process or what it forks."""
    number = 0
    while libc.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0) == 0:
        number += 1


def drop_capabilities() -> None:
    """Give up every right of root, also within a user namespace."""
    head = _CAPABILITIES_3.to_bytes(4, "little") + bytes(4)
    call(libc.capset, head, bytes(24))


def hide_memory() -> None:
    """No other process of this user may look into this one, or into what it forks; no core is dumped."""
    call(libc.prctl, _SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent has ended."""
    call(libc.prctl, _DEATH_SIGNAL, 9, 0, 0, 0)
