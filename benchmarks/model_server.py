"""A vLLM server on this machine, one that runs already or one that is started: its cache, its counters, its processes."""

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.usage import Group, of_vllm
from tests.support.servers import ServerProcess, free_port, started

COMMAND = ("bash", str(Path(__file__).parents[1] / "scripts" / "gpu_host.sh"))
START_SECONDS = 420
RESET_SECONDS = 10
_HERE = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_COUNTER = re.compile(r"^vllm:(prefix_cache_\w+?)(?:_total)?(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class ModelServer:
    """An OpenAI-compatible server; what only vLLM has is left out where it isn't vLLM."""

    url: str
    process: ServerProcess | None = None

    def card(self) -> dict[str, Any]:
        """The first model that it lists."""
        card: dict[str, Any] = json.loads(self._get("/v1/models"))["data"][0]
        return card

    def reset_prefix_cache(self) -> bool:
        """Forget all prefixes; false where the server can't (vLLM can with VLLM_SERVER_DEV_MODE=1).

        Raises:
            RuntimeError: it can, but something still holds them.
        """
        deadline = time.monotonic() + RESET_SECONDS
        while time.monotonic() < deadline:
            request = urllib.request.Request(f"{self.url}/reset_prefix_cache", b"", method="POST")
            try:
                with _HERE.open(request, timeout=RESET_SECONDS) as answer:
                    reported = answer.read()
            except urllib.error.HTTPError as error:
                if error.code in {http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED}:
                    return False
                raise
            if not reported or json.loads(reported).get("success", True):
                return True
            time.sleep(0.1)
        raise RuntimeError("The prefix cache can't be reset: something still uses it.")

    def prefix_cache(self) -> tuple[float, float]:
        """Tokens that were looked up in the prefix cache so far, and tokens found; zeros without one."""
        try:
            text = self._get("/metrics").decode()
        except urllib.error.HTTPError:
            return 0.0, 0.0
        sums = {"prefix_cache_queries": 0.0, "prefix_cache_hits": 0.0}
        for name, value in _COUNTER.findall(text):
            if name in sums:
                sums[name] += float(value)
        return sums["prefix_cache_queries"], sums["prefix_cache_hits"]

    def groups(self) -> dict[str, Group]:
        """Its processes: those that speak HTTP, and those that compute."""
        return {f"vllm_{kind}": of_vllm(kind, self.process) for kind in ("api", "engine")}

    def _get(self, path: str) -> bytes:
        with _HERE.open(f"{self.url}{path}", timeout=30) as answer:
            content: bytes = answer.read()
            return content


@contextmanager
def model_server(
    url: str | None,
    folder: Path,
    *,
    command: Sequence[str] = COMMAND,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[ModelServer]:
    """The server at this URL, or one that is started by the command and ready.

    Raises:
        RuntimeError: it ended, or wasn't ready in time; the message holds its log.
    """
    if url is not None:
        yield ModelServer(url.rstrip("/").removesuffix("/v1"))
        return
    with starting_model_server(folder, command, options, environment) as server:
        wait_until_ready(server)
        yield server


@contextmanager
def starting_model_server(
    folder: Path,
    command: Sequence[str],
    options: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Iterator[ModelServer]:
    """A server that is started by the command, which takes its port from PORT, and need not answer yet."""
    port = free_port()
    variables = {
        **os.environ,
        "PORT": str(port),
        "VLLM_SERVER_DEV_MODE": "1",
        **(environment or {}),
    }
    with started([*command, *options], port, folder, {}, variables) as process:
        yield ModelServer(process.url, process)


def wait_until_ready(server: ModelServer, within: float = START_SECONDS) -> None:
    """Wait for a server that was started here. Raises RuntimeError, with the end of its log."""
    if server.process is None:
        return
    try:
        server.process.wait_until_healthy("/health", within)
    except RuntimeError as error:
        raise RuntimeError(str(error)[-6000:]) from error
