"""The list of system calls that sandboxed code may make, as a seccomp filter of the Linux kernel.

It is what Python needs to compute, to use threads and event loops, and to work on files that it has open or
that Landlock lets it open. All else is refused with EPERM, and what is newer than this file as unknown: a
call that isn't thought of here does no harm. What changes a file's mode, owner, times or attributes isn't
listed, since Landlock doesn't judge those. Source: seccomp(2).
"""

import ctypes
import errno
import os
import platform
import re
import struct
from collections.abc import Mapping, Sequence

from memserver_evals.colbench.sandbox.system import call, libc

_FREE = """each with its number on x86_64 and on aarch64; -1 where there is none
files that are open:
    read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
    pwritev 296 70, close 3 57, close_range 436 436, lseek 8 62, fstat 5 80, fsync 74 82,
    fdatasync 75 83, ftruncate 77 46, sendfile 40 71, copy_file_range 326 285, getdents64 217 61,
    dup 32 23, dup2 33 -1, dup3 292 24, pipe 22 -1, pipe2 293 59
files by their names, as Landlock allows; truncate isn't here, which its first versions don't know:
    stat 4 -1, lstat 6 -1, newfstatat 262 79, statx 332 291, access 21 -1, faccessat 269 48,
    faccessat2 439 439, readlink 89 -1, readlinkat 267 78, statfs 137 43, fstatfs 138 44,
    getcwd 79 17, chdir 80 49, fchdir 81 50, mkdir 83 -1, mkdirat 258 34, rmdir 84 -1,
    unlink 87 -1, unlinkat 263 35, rename 82 -1, renameat 264 38, renameat2 316 276, umask 95 166
memory:
    brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233,
    msync 26 227
waiting:
    poll 7 -1, ppoll 271 73, select 23 -1, pselect6 270 72, epoll_create1 291 20, epoll_ctl 233 21,
    epoll_wait 232 -1, epoll_pwait 281 22, eventfd2 290 19, futex 202 98, nanosleep 35 101,
    clock_nanosleep 230 115, sched_yield 24 124, pause 34 -1, restart_syscall 219 128
signals to itself:
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
    rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132, alarm 37 -1,
    setitimer 38 103, getitimer 36 102
threads, and the end:
    set_robust_list 273 99, rseq 334 293, set_tid_address 218 96, exit 60 93, exit_group 231 94
what it may know:
    clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169, time 201 -1, times 100 153,
    getrusage 98 165, getrlimit 97 163, sysinfo 99 179, uname 63 160, getrandom 318 278,
    getcpu 309 168, getpid 39 172, gettid 186 178, getppid 110 173, getuid 102 174,
    geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150,
    getgroups 115 158, getpgrp 111 -1, sched_getaffinity 204 123
both ends of a pair of sockets:
    sendto 44 206, recvfrom 45 207, sendmsg 46 211, recvmsg 47 212, shutdown 48 210,
    getsockname 51 204, getpeername 52 205, getsockopt 55 209
"""
_PAIRS = {
    name: (int(intel), int(arm)) for name, intel, arm in re.findall(r"(\w+) (\d+) (-?\d+)", _FREE)
}
_OWN, _ALL_BITS = -1, 0xFFFFFFFF
"""The first stands for the number of the process itself."""
_TRUNCATE, _WAYS = os.O_TRUNC, os.O_ACCMODE
_STREAM, _LOCAL = 1, 1
_BOUND: Mapping[str, tuple[tuple[int, int], Sequence[tuple[int, int, Sequence[int]]]]] = {
    # name: numbers, and what some arguments must be: their place, the bits that count, the values
    # to truncate takes no right to write in Landlock's first versions
    "openat": ((257, 56), [(2, _TRUNCATE | _WAYS, (0, 1, 2, _TRUNCATE | 1, _TRUNCATE | 2))]),
    # TCGETS, FIOCLEX, FIONCLEX, FIONBIO, FIONREAD: nothing of a file's attributes
    "ioctl": ((16, 29), [(1, _ALL_BITS, (0x5401, 0x5451, 0x5450, 0x5421, 0x541B))]),
    # duplicates, flags and locks of a range: no lease, and no signal to an owner
    "fcntl": ((72, 25), [(1, _ALL_BITS, (*range(8), 1030))]),
    # of streams; one of datagrams sends to any socket that has a name
    "socketpair": ((53, 199), [(0, _ALL_BITS, (_LOCAL,)), (1, 0xF, (_STREAM,))]),
    "prctl": ((157, 167), [(0, _ALL_BITS, (15, 16))]),  # a thread's name
    "prlimit64": ((302, 261), [(0, _ALL_BITS, (0, _OWN))]),
    "kill": ((62, 129), [(0, _ALL_BITS, (_OWN,))]),
    "tgkill": ((234, 131), [(0, _ALL_BITS, (_OWN,))]),
    "clone": ((56, 220), [(0, _ALL_BITS, (0x3D0F00, 0x7D0F00))]),  # glibc's threads, and musl's
}
_CLONE3, _NEWEST = 435, 448
"""The last system call that this file was written with."""
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# BPF: opcode, jump if true, jump if false, constant
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_DENY, _UNKNOWN = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

_Instruction = tuple[int, int, int, int]


def is_known_machine() -> bool:
    return platform.system() == "Linux" and platform.machine() in _AUDIT


def numbers(machine: str) -> dict[str, int]:
    """The calls that are allowed, some of them with certain arguments only."""
    column = list(_AUDIT).index(machine)
    pairs = _PAIRS | {name: pair for name, (pair, _) in _BOUND.items()}
    return {name: pair[column] for name, pair in pairs.items() if pair[column] >= 0}


def program(machine: str, own_pid: int) -> list[_Instruction]:
    known = numbers(machine)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),  # a call of 32 bits
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 1, 0, _CLONE3),  # its flags can't be read by a filter; libc falls back to clone
        (_AT_LEAST, 0, 1, _NEWEST + 1),  # x32's are of these too
        (_RETURN, 0, 0, _UNKNOWN),
    ]
    for name, (_, conditions) in _BOUND.items():
        body = [step for condition in conditions for step in _checked(*condition, own_pid)]
        steps += [(_EQUAL, 0, len(body) + 1, known.pop(name)), *body, (_RETURN, 0, 0, _ALLOW)]
    steps += [
        (_EQUAL, len(known) - place, 0, number) for place, number in enumerate(known.values())
    ]
    return [*steps, (_RETURN, 0, 0, _DENY), (_RETURN, 0, 0, _ALLOW)]


def _checked(place: int, bits: int, values: Sequence[int], own_pid: int) -> list[_Instruction]:
    """Go on where these bits of an argument are one of the values, and refuse the call otherwise."""
    wanted = [own_pid if value == _OWN else value for value in values]
    return [
        (_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * place),
        (_AND, 0, 0, bits),
        *((_EQUAL, len(wanted) - nth, 0, value) for nth, value in enumerate(wanted)),
        (_RETURN, 0, 0, _DENY),
    ]


def confine() -> None:
    """Put this process and all its threads under the filter. Raises OSError: the kernel takes no filter."""
    steps = program(platform.machine(), os.getpid())
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(steps), ctypes.addressof(buffer))
    call(libc.prctl, _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call(libc.prctl, _SET_SECCOMP, _FILTER, ctypes.create_string_buffer(head, len(head)), 0, 0)
