"""A vLLM server of our own for as long as policies are sampled: started, waited for, and ended with us.

vLLM has its own environment, so this is a process that speaks HTTP. It serves the base and takes adapters
while it runs.
"""

import shlex
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from memserver.errors import SetupError
from memserver.local.engine.logged_process import (
    HOST,
    LoggedProcess,
    free_port,
    is_healthy,
    put_aside,
)
from sweet_rl.resumable import Deadline

_POLL, _HEALTH_SECONDS = 0.5, 2.0
_ENVIRONMENT = (
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
    "VLLM_NO_USAGE_STATS=1",
    "DO_NOT_TRACK=1",
    "HF_HUB_OFFLINE=1",
)
BASE = "base"
"""What the server calls the model without an adapter."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    command: tuple[str, ...]  # that runs vLLM's API server, without its options
    window: int = 4096  # tokens
    # of the keys and values that it keeps, in GB. A fixed size, so that what else uses the GPU while it starts doesn't
    # matter.
    cache_gb: float = 8
    rank: int = 16  # of the largest adapter
    more: tuple[str, ...] = ()  # further options
    start_seconds: float = 600  # that loading may take


def vllm_command(named: str | None) -> tuple[str, ...] | None:
    if named:
        return tuple(shlex.split(named))
    if find_spec("vllm") is None:
        return None
    return (sys.executable, "-m", "vllm.entrypoints.openai.api_server")


class VllmServer:
    def __init__(
        self, base: Path, log: Path, options: ServerOptions, gpu: str | None = None
    ) -> None:
        self._base, self._log, self._options, self._gpu = base, log, options, gpu
        self._port = free_port()
        self._url = f"http://{HOST}:{self._port}/v1"
        self._process: LoggedProcess | None = None
        self._begun = 0.0
        self._ready = False

    def __enter__(self) -> "VllmServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def address(self, deadline: Deadline | None = None) -> str:
        """The endpoint's address, once it answers; starts the server if need be."""
        while (url := self.address_if_ready()) is None:
            if deadline is not None:
                deadline.check("vLLM's server is still starting")
            time.sleep(_POLL)
        return url

    def address_if_ready(self) -> str | None:
        """The endpoint's address if it answers, else None; starts the server if need be."""
        if self._ready and self._process is not None and self._process.ended() is None:
            return self._url
        if self._ready or self._process is None:
            self.begin()
        if self._process is None or self._process.ended() is not None:
            lines = self._process.last_lines() if self._process else ""
            raise SetupError(
                f"vLLM's server ended while it was starting:\n{lines}",
                hint=f"Its log is {self._log}.",
            )
        self._ready = is_healthy(self._port, _HEALTH_SECONDS)
        if not self._ready and time.monotonic() > self._begun + self._options.start_seconds:
            raise SetupError(
                f"vLLM's server isn't ready after {self._options.start_seconds:g} seconds.",
                hint=f"Its log is {self._log}.",
            )
        return self._url if self._ready else None

    def begin(self) -> None:
        """Start it, if it doesn't run, and don't wait for it."""
        if self._process is not None and self._process.ended() is None:
            return
        self._ready, self._begun = False, time.monotonic()
        put_aside(self._log)
        try:
            self._process = LoggedProcess.start(self._command(), self._log)
        except OSError as error:
            raise SetupError(f"vLLM's server can't be started: {error}") from error

    def dismiss(self) -> None:
        if self._process is not None:
            self._process.dismiss()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        self._process = None

    def _command(self) -> list[str]:
        options = self._options
        where = () if self._gpu is None else (f"CUDA_VISIBLE_DEVICES={self._gpu}",)
        return [
            *("env", *_ENVIRONMENT, *where, *options.command),
            *("--model", str(self._base), "--served-model-name", BASE),
            *("--host", HOST, "--port", str(self._port)),
            *("--max-model-len", str(options.window), "--dtype", "bfloat16"),
            *("--enable-prefix-caching", "--uvicorn-log-level", "warning"),
            *("--enable-lora", "--max-lora-rank", str(_served_rank(options.rank))),
            *("--max-loras", "2", "--max-cpu-loras", "64"),
            *("--kv-cache-memory-bytes", str(round(options.cache_gb * 1e9))),
            *("--gpu-memory-utilization", "0.1"),  # is asked to be free when it starts, and no more
            *options.more,
        ]


def _served_rank(rank: int) -> int:
    """VLLM knows only some ranks."""
    return next(each for each in (8, 16, 32, 64, 128, 256) if each >= rank)
