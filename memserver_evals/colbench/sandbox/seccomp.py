"""The list of system calls that sandboxed code may not make, as a seccomp filter of the Linux kernel.

Everything that makes a process, a connection or a mount, that reaches another process, or that takes
memory or files past the other limits is refused with EPERM. Threads may be started, and a process may
signal itself. Calls newer than this file are refused as unknown. Source: seccomp(2).
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping

from memserver_evals.colbench.sandbox.system import call, libc

_NEEDED_BY_NOBODY = {  # name: number on x86_64, on aarch64; -1 where there is none
    "execve": (59, 221),
    "execveat": (322, 281),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "setns": (308, 268),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "personality": (135, 92),
    "modify_ldt": (154, -1),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "vhangup": (153, 58),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "fanotify_init": (300, 262),
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
}
_NEEDED_BY_SERVER = {
    "fork": (57, -1),
    "vfork": (58, -1),
    "unshare": (272, 97),
    "mount": (165, 40),
    "umount2": (166, 39),
    "capset": (126, 91),
}
_OWN_ONLY = {"kill": (62, 129), "tgkill": (234, 131)}
_PRLIMIT, _PRCTL, _CLONE, _CLONE3 = (302, 261), (157, 167), (56, 220), 435
_NEWEST = 448
"""The last system call that this file was written with."""
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE_THREAD, _OUTLIVE_PARENT = 0x10000, 1

# BPF: opcode, jump if true, jump if false, constant
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_DENY = _ERRNO | errno.EPERM
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

_Instruction = tuple[int, int, int, int]


def is_known_machine() -> bool:
    """Whether there is a filter for this kind of processor."""
    return platform.system() == "Linux" and platform.machine() in _AUDIT


def server_filter(machine: str) -> list[_Instruction]:
    """What the fork server and all that it forks may not call."""
    column = list(_AUDIT).index(machine)
    return [*_head(machine), *_refuse(_NEEDED_BY_NOBODY, column), (_RETURN, 0, 0, _ALLOW)]


def child_filter(machine: str, own_pid: int) -> list[_Instruction]:
    """What the process of one job may not call beyond that; short, since each job pays for it."""
    column = list(_AUDIT).index(machine)
    program = [
        *_head(machine),
        (_EQUAL, 0, 1, _CLONE3),  # its flags can't be read by a filter; libc falls back to clone
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        *_refuse(_NEEDED_BY_SERVER, column),
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _DENY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program += [
        (_EQUAL, 0, 4, _PRCTL[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, _OUTLIVE_PARENT),
        (_RETURN, 0, 0, _DENY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for numbers in _OWN_ONLY.values():
        program += _with_first_argument(numbers[column], (own_pid,))
    program += _with_first_argument(_PRLIMIT[column], (0, own_pid))
    program.append((_RETURN, 0, 0, _ALLOW))
    return program


def _head(machine: str) -> list[_Instruction]:
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _NEWEST + 1),  # the other calling convention of x86_64 too
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]


def _refuse(calls: Mapping[str, tuple[int, int]], column: int) -> list[_Instruction]:
    numbers = [pair[column] for pair in calls.values() if pair[column] >= 0]
    return [step for number in numbers for step in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY))]


def _with_first_argument(number: int, allowed: tuple[int, ...]) -> list[_Instruction]:
    """A call that is allowed with these first arguments only."""
    checks = [(_EQUAL, len(allowed) - place, 0, value) for place, value in enumerate(allowed)]
    return [
        (_EQUAL, 0, 3 + len(checks), number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *checks,
        (_RETURN, 0, 0, _DENY),
        (_RETURN, 0, 0, _ALLOW),
    ]


def confine_server() -> None:
    """Put this process, and all that it forks, under the first filter.

    Raises:
        OSError: the kernel takes no filter.
    """
    _install(server_filter(platform.machine()))


def confine_child() -> None:
    """Put this process and all its threads under the second filter too.

    Raises:
        OSError: the kernel takes no filter.
    """
    _install(child_filter(platform.machine(), os.getpid()))


def _install(program: list[_Instruction]) -> None:
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    call(libc.prctl, _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call(libc.prctl, _SET_SECCOMP, _FILTER, ctypes.create_string_buffer(head, len(head)), 0, 0)
