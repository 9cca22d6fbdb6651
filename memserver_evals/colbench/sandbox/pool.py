"""The sandbox as the rest of the program sees it: a bounded pool of fork servers.

Owns the servers' life. What they do is in `fork_server`, what comes back in `values`.
"""

import asyncio
import contextlib
import json
import os
import struct
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from memserver.errors import SetupError
from memserver_evals.colbench.kinds import Kind
from memserver_evals.colbench.sandbox.fork_server import SandboxLimits, ServerOptions, empty
from memserver_evals.colbench.sandbox.seccomp import is_known_machine
from memserver_evals.colbench.sandbox.values import CallOutcome, read_outcome

_HEAD = struct.Struct("=I")
_PATIENCE = 10
"""Seconds beyond a job's own limit until its server is taken for broken."""
_NEEDS = "It needs Linux with seccomp filters and Landlock; a container must not forbid them."
_TRIAL = SandboxLimits(10, 60, 60, megabytes=1024, file_megabytes=1, output_megabytes=1)
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from memserver_evals.colbench.sandbox.fork_server import start; start(*sys.argv[2:])"
)


@dataclass(frozen=True, slots=True)
class Protection:
    """What keeps code in on this machine, as its kernel allows.

    System calls are filtered always; without that nothing is run.
    """

    # it has a network of its own with nothing in it, process ids of its own, and files that live
    # in memory and are bounded together
    namespaces: bool
    # the kernel's version of Landlock, which keeps it from all files but Python's; 0 for none
    landlock: int
    user: int  # the id of the user that it runs as


class Sandbox:
    def __init__(
        self,
        limits: SandboxLimits | None = None,
        *,
        workers: int | None = None,
        namespaces: bool = True,
        disposable: bool = False,
    ) -> None:
        """Make it; servers start when they are needed.

        `workers`: how many jobs run at once; None for one for each core; `namespaces`: False to do without, as
        where the machine doesn't allow them; `disposable`: True to run code also where Landlock is missing, so
        that it could read and change all files of its user; for a machine that is thrown away.
        """
        self._limits = limits or SandboxLimits()
        self._workers = workers or os.cpu_count() or 1
        self._places: asyncio.LifoQueue[_Place] = asyncio.LifoQueue()
        for _ in range(self._workers):
            server = partial(_ForkServer, ServerOptions(namespaces, disposable))
            self._places.put_nowait({"answer": server(), "reference": server()})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run(
        self, source: str, calls: Sequence[str], *, kind: Kind = "answer"
    ) -> tuple[CallOutcome, ...]:
        """Evaluate each expression after the source was run again, in a process that ends thereafter.

        How each call ended, in order. No code makes this raise. Raises SetupError: this machine can't run code
        safely.
        """
        limits = self._limits
        place = await self._places.get()
        server, ended = place[kind], False
        try:
            async with asyncio.timeout(limits.job_seconds + _PATIENCE):
                lines = await server.run(_plain(source), [_plain(call) for call in calls], limits)
            ended = True
        except TimeoutError:
            return (CallOutcome(stop="time"),) * len(calls)
        finally:
            if not ended:
                server.kill()
            self._places.put_nowait(place)
        return tuple(map(read_outcome, lines))

    async def protection(self) -> Protection:
        """What keeps code in here. Raises SetupError: this machine can't run code safely."""
        place = await self._places.get()
        try:
            return await place["answer"].started()
        finally:
            self._places.put_nowait(place)

    async def aclose(self) -> None:
        for _ in range(self._workers):
            for server in (await self._places.get()).values():
                await server.aclose()


def _plain(text: str) -> str:
    """The text without what is no character, which no source may have."""
    return text.encode("utf-8", "replace").decode()


@dataclass
class _ForkServer:
    """One fork server, started when it is first asked and again after it was killed."""

    _options: ServerOptions
    _process: asyncio.subprocess.Process | None = None
    _protection: Protection | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _killed: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def run(self, source: str, calls: list[str], limits: SandboxLimits) -> list[str]:
        """A line for each call; one that was cut off has `["stop", why]`, and the next get a new process."""
        await self.started()
        lines: list[str] = []
        end = time.monotonic() + limits.job_seconds
        why = ""
        while len(lines) < len(calls):
            left = end - time.monotonic()
            if left <= 0 or why == "output":
                lines.append(json.dumps(["stop", "output" if why == "output" else "time"]))
                continue
            rest = calls[len(lines) :]
            got, why = await self._ask(source, rest, replace(limits, job_seconds=left))
            lines += got
            if len(got) < len(rest):
                lines.append(json.dumps(["stop", why]))
        return lines

    async def _ask(
        self, source: str, calls: list[str], limits: SandboxLimits
    ) -> tuple[list[str], str]:
        job = {"source": source, "calls": calls, "limits": asdict(limits)}
        content = json.dumps(job).encode()
        process = self._running
        if process.stdin is None:
            raise SetupError("The sandbox's process has no input.")
        process.stdin.write(_HEAD.pack(len(content)) + content)
        await process.stdin.drain()
        answer = await self._read()
        if "failed" in answer:
            raise SetupError(
                f"The sandbox can't work on this machine: {answer['failed']}", hint=_NEEDS
            )
        return answer["lines"], answer["why"]

    async def started(self) -> Protection:
        """Start it if it doesn't run, without namespaces where only that works; its protection."""
        if self._process is None or self._process.returncode is not None or not self._protection:
            try:
                self._protection = await self._tried()
            except SetupError:
                if not self._options.namespaces:
                    raise
                self._options = replace(self._options, namespaces=False)
                self._protection = await self._tried()
        return self._protection

    async def _tried(self) -> Protection:
        self.kill()
        await self._start()
        protection = Protection(**await self._read())
        lines, _ = await self._ask("", ["1"], _TRIAL)
        if lines != ['["value", ["int", "0x1"]]']:
            raise SetupError(
                f"The sandbox can't work on this machine: a trial gave {lines!r}", hint=_NEEDS
            )
        return protection

    async def _start(self) -> None:
        if not is_known_machine():
            raise SetupError(
                "Code of a model can be run on Linux only (x86_64 or aarch64), whose kernel can confine it.",
                hint="Run this in a Linux container or virtual machine.",
            )
        home = str(Path(__file__).parents[3])
        paths = [path for path in sys.path if path.endswith(("lib-dynload", ".zip"))]
        paths += [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
        self._folder = tempfile.TemporaryDirectory(
            prefix="memserver-sandbox-", ignore_cleanup_errors=True
        )
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-s", "-P", "-B", "-c", _START, home),
            json.dumps(asdict(self._options)),
            self._folder.name,
            *dict.fromkeys(paths),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"},
        )

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise SetupError("The sandbox's process isn't running.")
        return self._process

    async def _read(self) -> Any:  # noqa: ANN401 - JSON
        process = self._running
        if process.stdout is None:
            raise SetupError("The sandbox's process has no output.")
        try:
            head = await process.stdout.readexactly(_HEAD.size)
            return json.loads(await process.stdout.readexactly(*_HEAD.unpack(head)))
        except asyncio.IncompleteReadError as error:
            complaint = await process.stderr.read() if process.stderr else b""
            await process.wait()
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise SetupError(
                f"The sandbox can't work on this machine: {last or 'its process ended'}",
                hint=_NEEDS,
            ) from error

    def kill(self) -> None:
        """End it at once, with all that it runs; the next job starts a new one."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._killed.append(self._process)
            self._process = None
        if self._folder is not None:
            with contextlib.suppress(
                OSError, RecursionError
            ):  # what was killed may still write there
                empty(self._folder.name)
                self._folder.cleanup()
            self._folder = None

    async def aclose(self) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await process.wait()
        self.kill()
        for killed in self._killed:
            await killed.communicate()


_Place = dict[Kind, _ForkServer]
"""Where one job runs at a time."""
