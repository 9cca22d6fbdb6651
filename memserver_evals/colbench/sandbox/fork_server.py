"""The process that code is run from: it forks a confined child for each job on its stdin.

Only the standard library is imported here, and this process gets none of ours: no environment, no
settings, no open file. It doesn't read jobs itself, for its memory is inherited by all that it forks: when
one is there it forks a *keeper*, which reads that job, writes its result and ends. The keeper gets a space of
process ids and an empty folder of its own, forks the child into it, and kills it when its time is up, with
all that it started. The child confines itself for good, runs the calls, and writes one line for each.

A line is what the code says it returned. The code could write such a line itself, and would gain nothing:
the values that are expected never enter this process. The pool holds references and answers to different
servers.
"""

import contextlib
import gc
import itertools
import json
import math
import os
import random
import resource
import select
import signal
import struct
import sys
import sysconfig
import time
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn

from memserver_evals.colbench.sandbox import landlock, namespaces, seccomp
from memserver_evals.colbench.sandbox.encoding import encode

_HEAD = struct.Struct("=I")
_RESULT = 3
"""Where a child writes, and the one thing that it has open beside /dev/null."""
_FILES, _NOBODY, _MEGABYTE = 64, 65534, 2**20
_CONFINED = b"confined\n"
_OURS = ("memserver", "memserver_evals", "sweet_rl")
"""Packages of ours: from the generator of tasks an answer could make its reference again."""
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom", "/dev/zero"),
)
_PRELOADED = (
    "bisect", "calendar", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "fractions",
    "functools", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "textwrap", "typing", "urllib.parse", "uuid", "xml.etree.ElementTree",
)  # fmt: skip
"""What code often imports is there when its process begins."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    cpu_seconds: float = 1  # for one call
    wall_seconds: float = 5  # for one call; what sleeps or waits uses no CPU
    job_seconds: float = 30  # of wall clock for all calls of one job together
    megabytes: int = 1024  # of memory
    file_megabytes: int = 4  # of one file that it writes
    output_megabytes: int = 4  # of all that its calls return


@dataclass(frozen=True, slots=True)
class ServerOptions:
    namespaces: bool = True  # to use them where the machine allows it
    disposable: bool = False  # to run code also where it could read and write all files of its user


@dataclass(frozen=True, slots=True)
class _Host:
    in_namespaces: bool
    landlock: int
    rules: int
    folder: str


def main(options: ServerOptions, folder: str) -> None:
    """Confine what can be confined once, say how far that went, and serve until stdin ends.

    Jobs work in the folder, which is empty and stays so where there are namespaces.
    """
    os.umask(0o077)
    _leave_root(folder)
    in_namespaces = options.namespaces and namespaces.enter_namespaces()
    namespaces.hide_memory()
    server = os.fork()  # the first process in the new space of process ids
    if server:
        with contextlib.suppress(KeyboardInterrupt):
            os.waitpid(server, 0)
        return
    namespaces.die_with_parent()
    for name in _PRELOADED:
        __import__(name)
    namespaces.keep_from_new_capabilities()
    host = _host(in_namespaces, folder)
    if refusal := reason_to_refuse(host.landlock, options):
        sys.exit(refusal)
    gc.freeze()  # so that a child's collector leaves these pages shared
    _send({"namespaces": host.in_namespaces, "landlock": host.landlock, "user": os.getuid()})
    jobs = select.poll()
    jobs.register(0, select.POLLIN)
    while jobs.poll()[0][1] & select.POLLIN and _forked(host) == 0:
        pass
    os._exit(0)


def _host(in_namespaces: bool, folder: str) -> _Host:
    version = landlock.landlock_version()
    own = os.path.join(folder, "job")
    os.mkdir(own)
    places = (os.path.join(path, name) for path in sys.path for name in _OURS)
    hidden = filter(os.path.isdir, places)
    rules = landlock.shared_rules(_readable(), hidden, (folder, "/dev/null")) if version else -1
    return _Host(in_namespaces, version, rules, own)


def reason_to_refuse(landlock_version: int, options: ServerOptions) -> str:
    """Why code can't be run safely here, or an empty string."""
    if landlock_version or options.disposable:
        return ""
    return (
        "the kernel has no Landlock to keep code from this user's files; say that the machine is "
        "disposable if there is nothing on it that code may not read or change"
    )


def _leave_root(folder: str) -> None:
    """Go on as the user nobody, where Python's own files can then still be read."""
    if os.getuid() or not all(_open_to_all(path) for path in sys.path):
        return
    with contextlib.suppress(OSError):  # in a user namespace nobody may not exist
        os.chown(folder, _NOBODY, _NOBODY)
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def _open_to_all(path: str) -> bool:
    while path != "/":
        if os.path.isdir(path) and not os.stat(path).st_mode & 0o001:
            return False
        path = os.path.dirname(path)
    return True


def _readable() -> tuple[str, ...]:
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return tuple(dict.fromkeys([*own, *filter(os.path.isdir, sys.path), *_SYSTEM]))


def _receive() -> dict[str, Any]:
    (length,) = _HEAD.unpack(_exactly(_HEAD.size))
    job: dict[str, Any] = json.loads(_exactly(length))
    return job


def _exactly(length: int) -> bytes:
    """So many bytes of stdin, and not one of the next job."""
    content = bytearray()
    while len(content) < length:
        piece = os.read(0, length - len(content))
        if not piece:
            os._exit(1)
        content += piece
    return bytes(content)


def _send(answer: object) -> None:
    content = json.dumps(answer).encode()
    content = _HEAD.pack(len(content)) + content
    while content:
        content = content[os.write(1, content) :]


def _forked(host: _Host) -> int:
    """Have a keeper take the next job and answer it; how it ended, 0 if well."""
    keeper = os.fork()
    if keeper:
        return os.waitpid(keeper, 0)[1]
    try:
        namespaces.die_with_parent()
        job = _receive()
        try:
            result = _kept(host, job["source"], job["calls"], SandboxLimits(**job["limits"]))
        except (OSError, RuntimeError) as error:
            result = {"failed": repr(error)[:500]}
        _send(result)
        os._exit(0)
    finally:
        os._exit(1)


def _kept(host: _Host, source: str, calls: list[str], limits: SandboxLimits) -> dict[str, Any]:
    if host.in_namespaces:
        namespaces.new_processes_and_mounts()
        folder_size = 4 * limits.file_megabytes * _MEGABYTE
        namespaces.mount_memory(host.folder, folder_size, 4 * _FILES)
        if not host.landlock:  # other processes' environments could be read there
            namespaces.mount_memory("/proc", 4096, 2)
    reading, result = os.pipe()
    child = os.fork()
    if not child:
        _become_child(host, limits, result, source, calls)
    os.close(result)
    try:
        _wait_until_confined(reading)
        output, why = _output(child, reading, limits)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not host.in_namespaces:
            empty(host.folder)
    return {"lines": output.decode("utf-8", "replace").split("\n")[:-1][: len(calls)], "why": why}


def empty(folder: str) -> None:
    """Delete all in a folder, however deep: what is in a folder of it comes up first."""
    fresh = (f"{os.urandom(8).hex()}{number}" for number in itertools.count())
    while names := os.listdir(folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for inner in os.listdir(path):
                os.rename(os.path.join(path, inner), os.path.join(folder, next(fresh)))
            os.rmdir(path)


def _become_child(
    host: _Host, limits: SandboxLimits, result: int, source: str, calls: list[str]
) -> NoReturn:
    """Confine this process, say so, run the calls, and end. What fails before is written instead."""
    try:
        try:
            _confine(host, limits, result)
        except (OSError, ValueError) as error:
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


def _output(child: int, reading: int, limits: SandboxLimits) -> tuple[bytearray, str]:
    """What the child writes until it ends or one of its limits does, and which."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    output = bytearray()
    end = time.monotonic() + limits.job_seconds
    cpu, wall = limits.cpu_seconds, min(time.monotonic() + limits.wall_seconds, end)
    most = limits.output_megabytes * _MEGABYTE
    while len(output) < most:
        wait = min(wall - time.monotonic(), cpu - _cpu_seconds(child))
        if wait <= 0:
            return output, "time"
        if not poll.poll(wait * 1000 + 1):
            continue
        piece = os.read(reading, min(most - len(output), 65536))
        if not piece:
            return output, "ended"
        output += piece
        if b"\n" in piece:
            cpu = _cpu_seconds(child) + limits.cpu_seconds
            wall = min(time.monotonic() + limits.wall_seconds, end)
    return output, "output"


def _cpu_seconds(process: int) -> float:
    """What a process, with its threads, has used; it may have ended, but not been waited for."""
    try:
        return time.clock_gettime(~process << 3 | 2)  # the kernel's number of that process's clock
    except OSError:  # a kernel without such clocks; the other limits hold
        return 0


def _confine(host: _Host, limits: SandboxLimits, result: int) -> None:
    """Give up, for good, all that the code doesn't need."""
    if not host.in_namespaces:
        namespaces.die_with_parent()
    os.setsid()
    os.chdir(host.folder)
    if host.landlock:
        landlock.restrict_files(host.rules, (host.folder, "/dev/null"))
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.dup2(result, _RESULT)
    os.closerange(_RESULT + 1, 65536)
    bounds = {
        resource.RLIMIT_CPU: math.ceil(limits.job_seconds),
        resource.RLIMIT_AS: limits.megabytes * _MEGABYTE,
        resource.RLIMIT_FSIZE: limits.file_megabytes * _MEGABYTE,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    if host.in_namespaces and os.getuid():
        bounds[resource.RLIMIT_NPROC] = _FILES
    for limit, value in bounds.items():
        resource.setrlimit(limit, (value, value))
    namespaces.drop_capabilities()
    seccomp.confine()


def _run(source: str, calls: list[str]) -> None:
    """Run the source again for each call, and write a line of what the call returns."""
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


def start(options: str, folder: str, *paths: str) -> NoReturn:
    """Begin, with modules looked for in these folders only."""
    sys.path[:] = paths
    main(ServerOptions(**json.loads(options)), folder)
    sys.exit()
