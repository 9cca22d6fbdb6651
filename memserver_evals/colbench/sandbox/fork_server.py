"""The process that code is run from: it takes jobs on stdin and forks a confined child for each.

Only the standard library is imported here, and this process gets none of ours: no environment, no
settings, no open file. A job's child is forked in two steps. The keeper gets a space of process ids and
an empty folder of its own, forks the child into it, and kills it when its time is up, with all that it
started. The child confines itself for good, runs the calls, and writes one line for each.

A line is what the code says it returned. The code could write such a line itself, and would gain nothing:
the values that are expected never enter this process.
"""

import contextlib
import gc
import json
import math
import os
import random
import resource
import select
import shutil
import signal
import struct
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, BinaryIO, NoReturn

from memserver_evals.colbench.sandbox import landlock, namespaces, seccomp
from memserver_evals.colbench.sandbox.encoding import encode

_HEAD = struct.Struct("=I")
_RESULT = 3
"""Where a child writes, and the one thing that it has open beside /dev/null."""
_FILES, _NOBODY = 64, 65534
_FAILED, _CONFINED = b"failed: ", b"confined\n"
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom", "/dev/zero"),
)
_PRELOADED = (
    *("bisect", "calendar", "collections", "copy", "csv", "datetime", "decimal", "fractions"),
    *("functools", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics"),
    *(
        "string",
        "textwrap",
        "typing",
        "uuid",
        "xml.etree.ElementTree",
        "urllib.parse",
        "dataclasses",
    ),
)
"""What code often imports is there when its process begins."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child may use.

    Attributes:
        call_cpu: seconds of CPU for one call.
        call_wall: seconds of wall clock for one call.
        job_wall: seconds of wall clock for all calls of a job.
        memory: bytes of address space.
        file_size: bytes of one file; all its files together may have four times that.
        output: bytes of all results.
    """

    call_cpu: float
    call_wall: float
    job_wall: float
    memory: int
    file_size: int
    output: int


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the pool wants of a server.

    Attributes:
        namespaces: to use them where the machine allows it.
        disposable: to run code also where it could read and write the files of root.
    """

    namespaces: bool = True
    disposable: bool = False


@dataclass(frozen=True, slots=True)
class _Host:
    """What this machine allows, and where code may read."""

    in_namespaces: bool
    landlock: int
    readable: tuple[str, ...]
    folder: str


def main(wishes: Wishes, folder: str) -> None:
    """Confine what can be confined once, tell how far that went, and serve until stdin ends.

    Jobs work in the folder, which is empty and stays so where there are namespaces.
    """
    os.umask(0o077)
    _leave_root(folder)
    in_namespaces = wishes.namespaces and namespaces.enter_namespaces()
    server = os.fork()  # the first process in the new space of process ids
    if server:
        with contextlib.suppress(KeyboardInterrupt):
            os.waitpid(server, 0)
        return
    namespaces.die_with_parent()
    for name in _PRELOADED:
        __import__(name)
    namespaces.keep_from_new_capabilities()
    seccomp.confine_server()
    gc.freeze()  # so that a child's collector leaves these pages shared
    host = _tried(_Host(in_namespaces, landlock.landlock_version(), _readable(), folder))
    if not wishes.disposable and (refusal := reason_to_refuse(os.getuid(), host.landlock)):
        sys.exit(refusal)
    _send({"namespaces": host.in_namespaces, "landlock": host.landlock, "user": os.getuid()})
    while (job := _receive(sys.stdin.buffer)) is not None:
        _send(_serve(host, job))
    os._exit(0)


def _leave_root(folder: str) -> None:
    """Go on as the user nobody, where Python's own files can then still be read."""
    if os.getuid() or not all(_open_to_all(path) for path in sys.path):
        return
    with contextlib.suppress(OSError):  # in a user namespace nobody may not exist
        os.chown(folder, _NOBODY, _NOBODY)
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def _tried(host: _Host) -> _Host:
    """The host after a job has gone through, without namespaces where only that goes.

    Raises:
        RuntimeError: no job goes through.
    """
    limits = Limits(
        call_cpu=10, call_wall=60, job_wall=60, memory=2**30, file_size=2**20, output=2**20
    )
    try:
        output, _ = _supervised(host, "", ["1"], limits, time.monotonic() + limits.job_wall)
    except RuntimeError:
        if not host.in_namespaces:
            raise
        return _tried(replace(host, in_namespaces=False))
    if output != b'["value", ["int", "0x1"]]\n':
        raise RuntimeError(f"a trial gave {output[:200]!r}")
    return host


def reason_to_refuse(user: int, landlock_version: int) -> str:
    """Why code can't be run safely as this user, or an empty string."""
    if user or landlock_version:
        return ""
    return (
        "this is root, whose Python other users can't read, and the kernel has no Landlock to keep "
        "code from root's files; run it as another user, or say that the machine is disposable"
    )


def _open_to_all(path: str) -> bool:
    while path != "/":
        if os.path.isdir(path) and not os.stat(path).st_mode & 0o001:
            return False
        path = os.path.dirname(path)
    return True


def _readable() -> tuple[str, ...]:
    """The standard library, the installed packages and the system's libraries."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return tuple(dict.fromkeys([*own, *filter(os.path.isdir, sys.path), *_SYSTEM]))


def _receive(stream: BinaryIO) -> Any:  # noqa: ANN401 - JSON
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    return json.loads(stream.read(*_HEAD.unpack(head)))


def _send(answer: object) -> None:
    content = json.dumps(answer).encode()
    sys.stdout.buffer.write(_HEAD.pack(len(content)) + content)
    sys.stdout.buffer.flush()


def _serve(host: _Host, job: dict[str, Any]) -> list[str]:
    """A line for each call; one that was cut off has `["stop", why]`, and the next get a new process."""
    limits, calls = Limits(**job["limits"]), job["calls"]
    lines: list[str] = []
    end = time.monotonic() + limits.job_wall
    while len(lines) < len(calls):
        rest = calls[len(lines) :]
        output, why = _supervised(host, job["source"], rest, limits, end)
        got = output.decode("utf-8", "replace").split("\n")[:-1][: len(rest)]
        lines += got
        if len(got) < len(rest):
            lines.append(json.dumps(["stop", why]))
        if time.monotonic() >= end or why == "output":
            lines += [json.dumps(["stop", "time" if why == "ended" else why])] * (
                len(calls) - len(lines)
            )
    return lines


def _supervised(
    host: _Host, source: str, calls: list[str], limits: Limits, end: float
) -> tuple[bytes, str]:
    """Run calls in a keeper of their own; the whole lines that came, and how it ended."""
    reading, writing = os.pipe()
    keeper = os.fork()
    if not keeper:
        os.close(reading)
        try:
            _keep(host, source, calls, limits, end, writing)
        except BaseException as error:  # noqa: BLE001 - a forked process must not go on as its parent
            os.write(writing, b"\0" + _FAILED + repr(error)[:500].encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(writing)
    output = bytearray()
    while piece := os.read(reading, 65536):
        output += piece
    os.close(reading)
    os.waitpid(keeper, 0)
    lines, _, why = bytes(output).rpartition(b"\0")
    if why.startswith(_FAILED):
        raise RuntimeError(why.removeprefix(_FAILED).decode("utf-8", "replace"))
    return lines, why.decode()


def _keep(
    host: _Host, source: str, calls: list[str], limits: Limits, end: float, writing: int
) -> None:
    """Fork the child, pass on what it writes, and end it in time."""
    namespaces.die_with_parent()
    folder = host.folder
    if host.in_namespaces:
        namespaces.new_processes_and_mounts()
        namespaces.mount_memory(folder, 4 * limits.file_size, 4 * _FILES)
        if not host.landlock:  # other processes' environments could be read there
            namespaces.mount_memory("/proc", 4096, 2)
    else:
        folder = tempfile.mkdtemp(dir=folder)
    reading, result = os.pipe()
    child = os.fork()
    if not child:
        _become_child(host, folder, limits, result, source, calls)
    os.close(result)
    try:
        _wait_until_confined(reading)
        why = _pass_on(child, reading, writing, limits, end)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not host.in_namespaces:
            shutil.rmtree(folder, ignore_errors=True)
    os.write(writing, b"\0" + why.encode())


def _become_child(
    host: _Host, folder: str, limits: Limits, result: int, source: str, calls: list[str]
) -> NoReturn:
    """Confine this process, say so, run the calls, and end. What fails before is told instead."""
    try:
        try:
            _confine(host, folder, limits, result)
        except BaseException as error:  # noqa: BLE001 - a forked process must not go on as its parent
            os.write(result, repr(error).encode("utf-8", "replace").replace(b"\n", b" ") + b"\n")
            os._exit(1)
        os.write(_RESULT, _CONFINED)
        _run(source, calls)
    finally:
        os._exit(0)


def _wait_until_confined(reading: int) -> None:
    """Raises RuntimeError where the child says that it could not be; until then no strange code runs."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(reading, 1)):
        line += piece
    if line != _CONFINED:
        raise RuntimeError(f"the process can't be confined: {line.decode('utf-8', 'replace')}")


def _pass_on(child: int, reading: int, writing: int, limits: Limits, end: float) -> str:
    """Copy lines until the child ends, or one of its limits."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    left = limits.output
    cpu, wall = limits.call_cpu, min(time.monotonic() + limits.call_wall, end)
    while left > 0:
        wait = min(wall - time.monotonic(), cpu - _cpu_seconds(child))
        if wait <= 0:
            return "time"
        if not poll.poll(wait * 1000 + 1):
            continue
        piece = os.read(reading, min(left, 65536))
        if not piece:
            return "ended"
        left -= len(piece)
        os.write(writing, piece.replace(b"\0", b" "))
        if b"\n" in piece:
            cpu = _cpu_seconds(child) + limits.call_cpu
            wall = min(time.monotonic() + limits.call_wall, end)
    return "output"


def _cpu_seconds(process: int) -> float:
    """What a process, with its threads, has used; it may have ended, but not been waited for."""
    try:
        return time.clock_gettime(~process << 3 | 2)  # the kernel's number of that process's clock
    except OSError:  # a kernel without such clocks; the other limits hold
        return 0


def _confine(host: _Host, folder: str, limits: Limits, result: int) -> None:
    """Give up, for good, all that the code doesn't need."""
    if not host.in_namespaces:
        namespaces.die_with_parent()
    os.setsid()
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.dup2(result, _RESULT)
    os.closerange(_RESULT + 1, 65536)
    os.chdir(folder)
    bounds = {
        resource.RLIMIT_CPU: math.ceil(limits.job_wall),
        resource.RLIMIT_AS: limits.memory,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    if host.in_namespaces and os.getuid():
        bounds[resource.RLIMIT_NPROC] = _FILES
    for limit, value in bounds.items():
        resource.setrlimit(limit, (value, value))
    if host.landlock:
        landlock.restrict_files(host.landlock, host.readable, (folder, "/dev/null"))
    namespaces.drop_capabilities()
    seccomp.confine_child()


def _run(source: str, calls: list[str]) -> None:
    """Run the source anew for each call, and write a line of what the call returns."""
    code: CodeType | None = None
    for expression in calls:
        try:
            random.seed(0)  # the reference and an answer that draw alike get alike numbers
            code = code or compile(source, "answer.py", "exec")
            names: dict[str, Any] = {"__name__": "answer"}
            exec(code, names)
            line = f'["value", {encode(eval(expression, names))}]'
        except BaseException as error:  # noqa: BLE001 - somebody else's code
            line = json.dumps(["error", f"{type(error).__name__}: {error}"[:500]])
        _write(line)


def _write(line: str) -> None:
    content = line.encode("ascii", "replace") + b"\n"
    while content:
        content = content[os.write(_RESULT, content) :]


def start(wishes: str, folder: str, *paths: str) -> NoReturn:
    """Begin, with modules looked for in these folders only."""
    sys.path[:] = paths
    main(Wishes(**json.loads(wishes)), folder)
    sys.exit()
