"""How busy the processes of a benchmark and the GPU are, from /proc and nvidia-smi."""

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import PROC, ServerProcess, running_processes

_TICKS = os.sysconf("SC_CLK_TCK")
_USER_TIME, _SYSTEM_TIME, _PARENT = 11, 12, 1
Group = Callable[[], set[int]]
"""The processes, by number, that belong together now."""


@dataclass
class Usage:
    """What was used in a block: cores' worth of CPU by group, and the GPU's use in per cent if there is one."""

    cores: dict[str, float] = field(default_factory=dict)
    busiest: dict[str, float] = field(default_factory=dict)
    """Of each group, the process that used most: at 1 it is as busy as one thread can be."""
    gpu_percent: float | None = None


@contextmanager
def watching(groups: Mapping[str, Group]) -> Iterator[Usage]:
    """Watch while the block runs; the figures are there at its end."""
    usage = Usage()
    before, start = _cpu_seconds(), time.monotonic()
    with _watched_gpu(usage):
        yield usage
    wall, after = time.monotonic() - start, _cpu_seconds()
    for name, group in groups.items():
        shares = [(after[pid] - before.get(pid, 0.0)) / wall for pid in group() if pid in after]
        usage.cores[name] = round(sum(shares), 2)
        usage.busiest[name] = round(max(shares, default=0.0), 2)


def of_vllm(kind: str, server: ServerProcess | None) -> Group:
    """Processes of vLLM of one kind, api or engine: those of this server, or all of the machine's."""

    def pids() -> set[int]:
        ours = None if server is None else set(server.pids())
        found = {pid for pid, _ in running_processes() if _vllm_kind(_command_line(pid)) == kind}
        return found if ours is None else found & ours

    return pids


def of_postgres(home: Path) -> Group:
    """The embedded Postgres of this MEMSERVER_HOME, which is no child of memserver's.

    Raises:
        RuntimeError: when asked, and none runs there.
    """

    def pids() -> set[int]:
        postmasters = {
            int(file.read_text(encoding="utf-8").split()[0])
            for file in home.rglob("postmaster.pid")
        }
        if not postmasters:
            raise RuntimeError(f"No Postgres runs under {home}.")
        return _descendants(postmasters)

    return pids


def of_memserver(server: ServerProcess) -> Group:
    """All processes of this server."""
    return lambda: set(server.pids())


@contextmanager
def _watched_gpu(usage: Usage) -> Iterator[None]:
    program = shutil.which("nvidia-smi")
    if program is None:
        yield
        return
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=500"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ours = [f"--id={visible}"] if visible else []
    process = subprocess.Popen([program, *query, *ours], stdout=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        process.terminate()
        reported, _ = process.communicate()
        values = [float(line) for line in reported.split() if line.replace(".", "").isdigit()]
        usage.gpu_percent = round(statistics.mean(values), 1) if values else None


def _cpu_seconds() -> dict[int, float]:
    return {
        pid: (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _TICKS
        for pid, fields in running_processes()
    }


def _descendants(roots: set[int]) -> set[int]:
    """These processes and all below them."""
    parents = {pid: int(fields[_PARENT]) for pid, fields in running_processes()}
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _command_line(pid: int) -> str:
    try:
        content = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace").strip()


def _vllm_kind(command: str) -> str:
    if "VLLM::EngineCore" in command or "VLLM::Worker" in command:
        return "engine"
    speaking = ("VLLM::", "vllm.entrypoints", "vllm serve", "vllm-rs")
    return "api" if any(name in command for name in speaking) else ""
