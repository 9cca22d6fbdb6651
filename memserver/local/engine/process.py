"""The running local engine: vLLM's OpenAI-compatible server as a child process on the loopback.

Owns starting, watching and ending it; `install.py` puts it there, and the model client only ever
sees its URL.
"""

import asyncio
import json
import os
import re
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from memserver.errors import ModelUnavailable, SetupError
from memserver.local.engine.install import is_installed
from memserver.local.engine.logged_process import (
    HOST,
    LoggedProcess,
    free_port,
    is_healthy,
    put_aside,
)
from memserver.local.engine.paths import MODEL_NAME, EnginePaths

_HEALTH_TIMEOUT = 1.0
_POLL_INTERVAL = 0.25
_ERROR = re.compile(r"\b\w*(Error|error): |\bERROR\b(?!,)")
_MOST_ERROR_LINES = 5

# How grammars are enforced. Free whitespace would let a small model pad JSON up to max_tokens, which
# cuts it off. guidance lets a schema choose its separators (see docs/local_model.md) but refuses
# vLLM's grammar for strict native tools; xgrammar takes those and writes JSON without any space.
_FOR_JSON = {"backend": "guidance", "disable_any_whitespace": True}
_FOR_NATIVE_TOOLS = {"backend": "xgrammar", "disable_any_whitespace": True}

_WHOLE_PROMPTS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens")
"""On a CPU vLLM dies of a prompt that it reads in pieces, if the request has a seed and a temperature."""
_FOR_ADAPTERS = ("--enable-lora", "--max-lora-rank", "32", "--max-loras", "2")

_STEPS = (
    ("Starting vLLM server", "starting its server"),
    ("init engine", "starting its server"),
    ("Loading weights took", "preparing the cache"),
    ("Starting to load model", "reading the weights"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("non-default args", "reading the model's configuration"),
)
"""What the log says last of all, and what the engine does then; latest first."""


class EnginePhase(StrEnum):
    STOPPED = "stopped"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EngineState:
    """A phase; `detail` is what it does while it loads, and the log's important lines when it is failed."""

    phase: EnginePhase
    detail: str = ""


class LocalEngine:
    """vLLM on the CPU, serving the installed model to this process alone.

    It ends with the process that started it, even if that is killed. One object starts one engine
    at a time; it can be started again after it has failed or was stopped.
    """

    def __init__(
        self,
        home: Path,
        *,
        model: str = MODEL_NAME,
        context_window: int = 8192,
        native_tools: bool = False,
        adapters: bool = False,
    ) -> None:
        """Describe the engine; nothing starts yet.

        Args:
            home: MEMSERVER_HOME.
            model: which of the two installed models; adapters are for the base.
            context_window: tokens of prompt and output together.
            native_tools: be ready for native tool calling; JSON schemas are then kept to as well,
                but the model writes better with the separators that only the default has.
            adapters: take LoRA adapters up to rank 32, also while it runs. On a CPU an adapter reads a
                new prompt about seven times slower than the model does.
        """
        self.model = model
        self._paths = EnginePaths(home)
        self.log = self._paths.log
        self._port = free_port()
        self.base_url = f"http://{HOST}:{self._port}/v1"
        self._context_window = context_window
        # All but one, which the server needs.
        self._threads = max(1, len(_usable_cores()) - 1)
        self._structured_outputs = _FOR_NATIVE_TOOLS if native_tools else _FOR_JSON
        self._adapters = adapters
        self._process: LoggedProcess | None = None

    def start(self) -> None:
        """Start the engine and return at once; it loads in the background. Does nothing if it runs.

        Raises:
            SetupError: it isn't installed, or can't be started.
        """
        if self._process is not None and self._process.ended() is None:
            return
        if not is_installed(self._paths.home):
            raise SetupError(
                "The local engine isn't installed.",
                hint="Run `memserver engine install`, or set MEMSERVER_LLM_BASE_URL.",
            )
        try:
            put_aside(self.log)
            self._process = LoggedProcess.start(self._command(), self.log, self._environment())
        except OSError as error:
            raise SetupError(f"The local engine can't be started: {error}") from error

    def state(self) -> EngineState:
        """Where the engine stands now: one look at the process and, if it lives, at its health."""
        process = self._process
        if process is None:
            return EngineState(EnginePhase.STOPPED)
        if (code := process.ended()) is not None:
            detail = f"It ended with exit code {code}. {self._error_lines()}"
            return EngineState(EnginePhase.FAILED, detail)
        if is_healthy(self._port, _HEALTH_TIMEOUT):
            return EngineState(EnginePhase.READY)
        return EngineState(EnginePhase.LOADING, self._step())

    async def wait_until_ready(self, *, within: float) -> None:
        """Wait for the engine to answer.

        Raises:
            ModelUnavailable: it failed, was never started, or is still loading after so many seconds.
        """
        deadline = time.monotonic() + within
        while (state := await asyncio.to_thread(self.state)).phase is not EnginePhase.READY:
            if state.phase is not EnginePhase.LOADING or time.monotonic() > deadline:
                raise ModelUnavailable(
                    f"The local engine is {state.phase}. {state.detail}".strip(),
                    hint=f"Its log is {self._paths.log}.",
                )
            await asyncio.sleep(_POLL_INTERVAL)

    def stop(self) -> None:
        """End the engine and all its processes; blocks until they are gone, seconds at most."""
        # First of all it counts as stopped: who watches it must not start it again.
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def _command(self) -> list[str]:
        server = Path(__file__).with_name("vllm_server.py")
        cores = _usable_cores()[-self._threads :]
        return [
            *(str(self._paths.python), "-I", str(server), ",".join(map(str, cores))),
            *("--model", str(self._paths.of(self.model)), "--served-model-name", self.model),
            *("--host", HOST, "--port", str(self._port)),
            *("--max-model-len", str(self._context_window), "--dtype", "bfloat16"),
            *("--enforce-eager", "--distributed-executor-backend", "uni"),
            "--enable-prefix-caching",
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            *("--structured-outputs-config", json.dumps(self._structured_outputs)),
            *("--uvicorn-log-level", "warning"),
            *_WHOLE_PROMPTS,
            str(self._context_window),
            *(_FOR_ADAPTERS if self._adapters else ()),
        ]

    def _environment(self) -> dict[str, str]:
        inherited = os.environ  # noqa: TID251 - a child needs PATH and the like
        cache = str(self._paths.cache)
        environment = inherited | {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": str(self._threads),
            "VLLM_CACHE_ROOT": cache,
            "VLLM_CONFIG_ROOT": cache,
            "HF_HOME": cache,
            "XDG_CACHE_HOME": cache,
            "NO_PROXY": "127.0.0.1,localhost",
        }
        if self._adapters:
            environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
        return environment

    def _step(self) -> str:
        log = self._log_text()
        return next((step for mark, step in _STEPS if mark in log), "importing vLLM")

    def _log_text(self) -> str:
        try:
            return self._paths.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _error_lines(self) -> str:
        lines = self._log_text().splitlines()
        errors = [line.strip() for line in lines if _ERROR.search(line)]
        return "\n".join((errors or lines)[-_MOST_ERROR_LINES:])


def _usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))
