"""The filters' programs, run by a small interpreter: also those for a processor that isn't this one."""

import errno

import pytest

from memserver_evals.colbench.sandbox import seccomp
from memserver_evals.colbench.sandbox.fork_server import reason_to_refuse

ALLOWED, DENIED, ABSENT, KILLED = (
    0x7FFF0000,
    0x50000 | errno.EPERM,
    0x50000 | errno.ENOSYS,
    0x80000000,
)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OWN = 4321


def decide(
    program: list[tuple[int, int, int, int]], architecture: int, number: int, first: int = 0
) -> int:
    memory = {0: number, 4: architecture, 16: first}
    place = value = 0
    while True:
        code, if_true, if_false, constant = program[place]
        place += 1
        if code == 0x20:
            value = memory[constant]
        elif code == 0x06:
            return constant
        else:
            holds = {0x15: value == constant, 0x35: value >= constant, 0x45: value & constant}[code]
            place += if_true if holds else if_false


CASES = [  # what, number on x86_64, on aarch64, its first argument, and what is to come of it
    ("read", 0, 63, 5, ALLOWED),
    ("mmap", 9, 222, 0, ALLOWED),
    ("kill itself", 62, 129, OWN, ALLOWED),
    ("kill another", 62, 129, 1, DENIED),
    ("kill its group", 62, 129, 0, DENIED),
    ("signal a thread of its own", 234, 131, OWN, ALLOWED),
    ("signal a thread of another", 234, 131, 7, DENIED),
    ("its own limits", 302, 261, 0, ALLOWED),
    ("its own limits by number", 302, 261, OWN, ALLOWED),
    ("another's limits", 302, 261, 1, DENIED),
    ("a thread", 56, 220, 0x3D0F00, ALLOWED),
    ("a process", 56, 220, 17, DENIED),
    ("a process or thread by the new call", 435, 435, 0, ABSENT),
    ("outliving its parent", 157, 167, 1, DENIED),
    ("another prctl", 157, 167, 15, ALLOWED),
    ("a new namespace", 272, 97, 0, DENIED),
    ("a mount", 165, 40, 0, DENIED),
    ("a call that isn't known", 449, 449, 0, ABSENT),
    ("a call of the other convention", 0x40000000, 0x40000000, 0, ABSENT),
]
ALWAYS = [
    ("socket", 41, 198),
    ("connect", 42, 203),
    ("execve", 59, 221),
    ("ptrace", 101, 117),
    ("io_uring_setup", 425, 425),
    ("memfd_create", 319, 279),
    ("bpf", 321, 280),
]


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("what", "intel", "arm", "first", "expected"), CASES)
def test_a_job_s_process_may_do_what_it_needs(
    machine: str, what: str, intel: int, arm: int, first: int, expected: int
) -> None:
    program = seccomp.child_filter(machine, OWN)
    number = intel if machine == "x86_64" else arm
    assert decide(program, ARCHITECTURES[machine], number, first) == expected, what


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("what", "intel", "arm"), ALWAYS)
def test_nobody_in_the_sandbox_may_do_this(machine: str, what: str, intel: int, arm: int) -> None:
    program = seccomp.server_filter(machine)
    number = intel if machine == "x86_64" else arm
    assert decide(program, ARCHITECTURES[machine], number) == DENIED, what


def test_another_architecture_s_calls_end_the_process() -> None:
    for program in (seccomp.server_filter("x86_64"), seccomp.child_filter("x86_64", OWN)):
        assert decide(program, 0x40000003, 1) == KILLED


def test_root_runs_no_code_without_landlock() -> None:
    assert reason_to_refuse(0, 0)
    assert not reason_to_refuse(0, 1)
    assert not reason_to_refuse(1000, 0)
