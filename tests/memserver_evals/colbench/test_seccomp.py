"""The filter's program, run by a small interpreter: also that for a processor that isn't this one."""

import errno
import os

import pytest

from memserver_evals.colbench.sandbox import seccomp
from memserver_evals.colbench.sandbox.fork_server import ServerOptions, reason_to_refuse

ALLOWED, DENIED, ABSENT, KILLED = (
    0x7FFF0000,
    0x50000 | errno.EPERM,
    0x50000 | errno.ENOSYS,
    0x80000000,
)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OWN = 4321


def decide(
    program: list[tuple[int, int, int, int]], architecture: int, number: int, *arguments: int
) -> int:
    memory = {0: number, 4: architecture, **{16 + 8 * n: 0 for n in range(6)}}
    memory |= {16 + 8 * place: value for place, value in enumerate(arguments)}
    place = value = 0
    while True:
        code, if_true, if_false, constant = program[place]
        place += 1
        if code == 0x20:
            value = memory[constant]
        elif code == 0x54:
            value &= constant
        elif code == 0x06:
            return constant
        else:
            holds = {0x15: value == constant, 0x35: value >= constant}[code]
            place += if_true if holds else if_false


CASES = [  # what, number on x86_64, on aarch64, its first arguments, and what is to come of it
    ("read", 0, 63, (5,), ALLOWED),
    ("mmap", 9, 222, (), ALLOWED),
    ("kill itself", 62, 129, (OWN,), ALLOWED),
    ("kill another", 62, 129, (1,), DENIED),
    ("kill its group", 62, 129, (0,), DENIED),
    ("signal a thread of its own", 234, 131, (OWN,), ALLOWED),
    ("signal a thread of another", 234, 131, (7,), DENIED),
    ("its own limits", 302, 261, (0,), ALLOWED),
    ("its own limits by number", 302, 261, (OWN,), ALLOWED),
    ("another's limits", 302, 261, (1,), DENIED),
    ("a thread", 56, 220, (0x3D0F00,), ALLOWED),
    ("a thread with a network of its own", 56, 220, (0x403D0F00,), DENIED),
    ("a process", 56, 220, (17,), DENIED),
    ("a process or thread by the new call", 435, 435, (), ABSENT),
    ("outliving its parent", 157, 167, (1,), DENIED),
    ("being looked into", 157, 167, (4, 1), DENIED),
    ("its name", 157, 167, (15,), ALLOWED),
    ("open to read", 257, 56, (0, 0, os.O_RDONLY | os.O_CLOEXEC), ALLOWED),
    ("open to write", 257, 56, (0, 0, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), ALLOWED),
    ("open to read what is then empty", 257, 56, (0, 0, os.O_TRUNC), DENIED),
    ("open for neither", 257, 56, (0, 0, 3), DENIED),
    ("empty a file by its name", 76, 45, (), DENIED),
    ("whether it is a terminal", 16, 29, (3, 0x5401), ALLOWED),
    ("a file's flags", 16, 29, (3, 0x40086602), DENIED),
    ("a duplicate", 72, 25, (3, 1030), ALLOWED),
    ("an owner to be signalled", 72, 25, (3, 8), DENIED),
    ("a pair of streams", 53, 199, (1, 1 | os.O_CLOEXEC), ALLOWED),
    ("a pair of datagram sockets", 53, 199, (1, 2), DENIED),
    ("a pair of another family", 53, 199, (30, 1), DENIED),
    ("a new namespace", 272, 97, (), DENIED),
    ("a mount", 165, 40, (), DENIED),
    ("fchmodat", 268, 53, (), DENIED),
    ("fchownat", 260, 54, (), DENIED),
    ("utimensat", 280, 88, (), DENIED),
    ("setxattr", 188, 5, (), DENIED),
    ("socket", 41, 198, (), DENIED),
    ("connect", 42, 203, (), DENIED),
    ("execve", 59, 221, (), DENIED),
    ("ptrace", 101, 117, (), DENIED),
    ("io_uring_setup", 425, 425, (), DENIED),
    ("memfd_create", 319, 279, (), DENIED),
    ("bpf", 321, 280, (), DENIED),
    ("a call that isn't known", 449, 449, (), ABSENT),
    ("a call of the other convention", 0x40000000, 0x40000000, (), ABSENT),
]


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("what", "intel", "arm", "arguments", "expected"), CASES)
def test_a_job_s_process_may_do_what_it_needs(
    machine: str, what: str, intel: int, arm: int, arguments: tuple[int, ...], expected: int
) -> None:
    number = intel if machine == "x86_64" else arm
    program = seccomp.program(machine, OWN)
    assert decide(program, ARCHITECTURES[machine], number, *arguments) == expected, what


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_other_call_is_refused(machine: str) -> None:
    program, listed = seccomp.program(machine, OWN), set(seccomp.numbers(machine).values())
    for number in set(range(2048)) - listed:
        assert decide(program, ARCHITECTURES[machine], number) in {DENIED, ABSENT}
        assert decide(program, ARCHITECTURES[machine], number | 0x40000000) == ABSENT


def test_another_architecture_s_calls_end_the_process() -> None:
    assert decide(seccomp.program("x86_64", OWN), 0x40000003, 1) == KILLED
    assert decide(seccomp.program("aarch64", OWN), 0x40000028, 1) == KILLED


def test_no_code_is_run_without_landlock_but_on_a_disposable_machine() -> None:
    assert reason_to_refuse(0, ServerOptions())
    assert not reason_to_refuse(0, ServerOptions(disposable=True))
    assert not reason_to_refuse(1, ServerOptions())
