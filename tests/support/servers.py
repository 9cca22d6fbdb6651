"""Real server processes on this machine: memserver and the scripted model, started and ended.

Owns their ports, their environment, their logs and their end. Leaves what is asked of them to the
benchmarks and to the tests of processes. Nothing of the caller's environment reaches them but PATH and
PYTHONPATH.
"""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 20

Settings = dict[str, object]
"""memserver's settings by the names in `memserver.settings`."""

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ServerProcess:
    """A server that was started here, with the processes that it starts itself."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process that was started, and the group of all that it starts."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        """Whether the process that was started has ended."""
        return self.process.poll() is not None

    def pids(self) -> list[int]:
        """Every process of the server that still runs."""
        return [pid for pid, fields in running_processes() if int(fields[2]) == self.pid]

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far."""
        ticks = sum(
            int(fields[11]) + int(fields[12])
            for _, fields in running_processes()
            if int(fields[2]) == self.pid
        )
        return ticks / _TICKS

    def healthy(self, path: str) -> bool:
        """Whether a GET of the path is answered by 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_until_healthy(self, path: str, within: float = START_SECONDS) -> None:
        """Wait for the first 200.

        Raises:
            RuntimeError: the server has ended, or the time is over; the message holds its log.
        """
        settled = wait_for(lambda: self.ended or self.healthy(path), within)
        if self.ended or not settled:
            raise RuntimeError(f"No server on port {self.port}:\n{self.log_text()}")

    def log_text(self) -> str:
        """What it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def terminate(self, within: float = STOP_SECONDS) -> int | None:
        """Ask it to end, as a service manager does; its exit status, None if it doesn't end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the process and all that it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def wait_for(condition: Callable[[], object], within: float) -> bool:
    """Look again and again until the condition holds; false when the time is over."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def plain_environment(
    folder: Path, settings: Settings, checkout: Path | None = None
) -> dict[str, str]:
    """An environment with memserver's settings and nothing of the caller's but the paths to programs."""
    named = {f"MEMSERVER_{name.upper()}": str(value) for name, value in settings.items()}
    paths = {"PATH": os.environ.get("PATH", os.defpath)}
    if "PYTHONPATH" in os.environ and checkout is None:  # the server is then our own checkout
        paths["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return {**paths, "HOME": str(folder), "LC_ALL": "C.UTF-8", **named}


def settings_for(model_url: str, **more: object) -> Settings:
    """Settings for this scripted model, which makes vectors too, so that no embedding model is loaded.

    Nothing is indexed in the background unless a test wants it.
    """
    return {
        "llm_base_url": f"{model_url}/v1",
        "embedding_base_url": f"{model_url}/v1",
        "embedding_model": "hashing",
        "embedding_dimension": 384,
        "index_after_seconds": 60,
        **more,
    }


def memserver_command() -> Path:
    """The command as it is installed beside this Python."""
    return Path(sysconfig.get_path("scripts")) / "memserver"


@contextmanager
def scripted_model(
    folder: Path, *, rule: str = "echo", context_window: int = 8192
) -> Iterator[ServerProcess]:
    """The scripted model in a process of its own."""
    port = free_port()
    module = [sys.executable, "-m", "memserver.testing.scripted_server"]
    options = ["--port", str(port), "--rule", rule, "--context-window", str(context_window)]
    with started([*module, *options], port, folder, {}) as server:
        server.wait_until_healthy("/health")
        yield server


def create_key(folder: Path, settings: Settings, checkout: Path | None = None) -> str:
    """An API key of the default tenant, by the command; from now on the server wants one."""
    made = subprocess.run(
        [*_memserver(checkout), "keys", "create", "benchmark"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd=folder,
        env=plain_environment(folder, settings, checkout),
    )
    return made.stdout.strip()


@contextmanager
def memserver(
    folder: Path,
    settings: Settings,
    *options: str,
    port: int | None = None,
    checkout: Path | None = None,
) -> Iterator[ServerProcess]:
    """`memserver serve`, from its first answer on; options and settings are the user's.

    It is that of another checkout with its own `.venv` if one is given.
    """
    with starting_memserver(folder, settings, *options, port=port, checkout=checkout) as server:
        server.wait_until_healthy("/v1/health")
        yield server


@contextmanager
def starting_memserver(
    folder: Path,
    settings: Settings,
    *options: str,
    port: int | None = None,
    checkout: Path | None = None,
) -> Iterator[ServerProcess]:
    """`memserver serve`, which need not answer yet, or ever."""
    port = port or free_port()
    command = [*_memserver(checkout), "serve", "--port", str(port), *options]
    environment = plain_environment(folder, settings, checkout)
    with started(command, port, folder, settings, environment) as server:
        yield server


@contextmanager
def started(
    command: Sequence[str],
    port: int,
    folder: Path,
    settings: Settings,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """A command as a process group, which is gone at the end of the block whatever it does.

    Its environment is a plain one with the settings, unless another one is given.
    """
    log = folder / f"{Path(command[0]).name}-{port}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,  # without a .env
            env=plain_environment(folder, settings) if environment is None else environment,
            start_new_session=True,
        )
    server = ServerProcess(process, port, log)
    try:
        yield server
    finally:
        if process.poll() is None:
            server.terminate()
        server.kill()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that the embedded Postgres's account may pass through, also as root."""
    folder = Path(tempfile.mkdtemp(prefix="memserver-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _memserver(checkout: Path | None = None) -> list[str]:
    if checkout is not None:
        return [str(checkout.resolve() / ".venv" / "bin" / "memserver")]
    installed = memserver_command()
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "memserver"]


def running_processes() -> Iterator[tuple[int, list[str]]]:
    """Running processes with the fields of their stat after the name: state, parent, group."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        if fields[0] not in {"Z", "X"}:
            yield int(entry.name), fields
