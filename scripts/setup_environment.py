"""Make .venv and install all that memserver needs; what `make install` runs.

Needs Python 3.11 or newer with pip, nothing else. Running it again when nothing changed takes a moment:
a stamp in .venv remembers what each step was done for. With `--without-engine` it leaves that to a later run.

Variables it reads:
    MEMSERVER_LLM_BASE_URL  a model served elsewhere, here or in .env: the local engine is left out
    MEMSERVER_SKIP_ENGINE   set to 1 to leave it out all the same
    MEMSERVER_TORCH_INDEX   where CPU builds of torch are, if the default package index has none
    MEMSERVER_HOME          where the engine goes (the engine's own default otherwise)
"""

# Parsed by any Python 3, so that an old one can say what is wrong.
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from ast import literal_eval
from collections.abc import Callable
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VENV = REPOSITORY / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "memserver-setup.json"
TORCH = "2.13.0"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
UV = "uv==0.13.9"
UV_OPTIONS = ("index-url", "extra-index-url", "find-links", "constraint")
"""What uv calls as pip's configuration does."""
UV_VARIABLES = {
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
}
INDIFFERENT_TO_UV = (
    "break-system-packages", "cache-dir", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input",
    "no-warn-script-location", "prefer-binary", "progress-bar", "quiet", "require-virtualenv", "retries",
    "root-user-action", "verbose",
)  # fmt: skip
"""What pip may be configured to without another outcome. With anything else, pip installs."""
OLDEST = (3, 11)
SHOWN_LINES = 25
IN_TERMINAL = sys.stdout.isatty()


class StepError(Exception):
    """A step that can't go on; says what to do about it."""

    def __init__(self, output: str, advice: str) -> None:
        super().__init__(output)
        self.output = output
        self.advice = advice


def main() -> int:
    """Run the steps that aren't done yet; 0 if all is well."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"memserver needs Python 3.11 or newer; this is {found} ({sys.executable}).")
        print("Install a newer one, or name it: make install PYTHON=/path/to/python3.12")
        return 1
    if os.name == "nt":
        print("memserver runs on Linux; on Windows use WSL.")
        return 1
    started = time.monotonic()
    steps = [
        ("virtual environment", environment_key, make_environment),
        ("torch", torch_key, install_torch),
        ("memserver and its dependencies", packages_key, install_memserver),
        ("local model engine", engine_key, install_engine),
    ]
    wanted = steps[:-1] if "--without-engine" in sys.argv else steps
    done = read_stamp()
    ran = 0
    for number, (name, key_of, action) in enumerate(wanted, start=1):
        key = key_of()
        if done.get(name) == key:
            continue
        if not run_step(f"[{number}/{len(steps)}] {name}", action):
            return 1
        ran += 1
        done = {**read_stamp(), name: key_of()}
        STAMP.write_text(json.dumps(done, indent=1), encoding="utf-8")
    seconds = time.monotonic() - started
    print(f"Installed in {seconds:.0f} s." if ran else f"All installed ({seconds:.1f} s).")
    return 0


def run_step(title: str, action: Callable[[], str | None]) -> bool:
    """Run one step, showing how it goes; false if it failed, having said how."""
    started = time.monotonic()
    with Progress(title):
        try:
            note, failure = action(), None
        except StepError as error:
            note, failure = "failed", error
    print(f"{title}: {note or 'done'} ({time.monotonic() - started:.0f} s)", flush=True)
    if failure is None:
        return True
    tail = failure.output.strip().splitlines()[-SHOWN_LINES:]
    print("\n".join(f"    {line}" for line in tail))
    print(f"Step failed: {title}\nWhat to do: {failure.advice}")
    return False


class Progress:
    """What a step does: a live line in a terminal, elsewhere a line every 20 seconds."""

    doing = ""
    """The last line of the command that runs."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.show)

    def __enter__(self) -> None:
        Progress.doing = ""
        print(f"{self.title} …", end="" if IN_TERMINAL else "\n", flush=True)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        if IN_TERMINAL:
            print("\r\033[K", end="")

    def show(self) -> None:
        """Show it until the step is done."""
        started = time.monotonic()
        while not self.done.wait(0.5 if IN_TERMINAL else 20):
            now = f"{time.monotonic() - started:.0f} s  {Progress.doing}"
            if IN_TERMINAL:
                width = shutil.get_terminal_size().columns - 1
                print("\r\033[K" + f"{self.title} … {now}"[:width], end="", flush=True)
            else:
                print(f"    {now[:110]}", flush=True)


# --- what each step was done for


def read_stamp() -> dict[str, str]:
    """What was done before, by step; nothing if the environment was removed or can't run."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and environment_key() else {}


def environment_key() -> str:
    """The version of the environment's Python; empty if it has none that is usable."""
    check = "import sys, pip; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        version = subprocess.run(
            [str(PYTHON), "-c", check], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return version if tuple(map(int, version.split(".")))[:2] >= OLDEST else ""


def torch_key() -> str:
    """The torch that is wanted."""
    return TORCH


def packages_key() -> str:
    """Changes with what is declared and what is locked."""
    files = [REPOSITORY / "pyproject.toml", REPOSITORY / "constraints" / "server.txt"]
    return digest(files) + environment_key()


def engine_key() -> str:
    """Changes with the engine's lock and its home."""
    if engine_unwanted():
        return read_stamp().get("local model engine", "skipped")
    files = [*sorted((REPOSITORY / "constraints").glob("engine*")), Path(__file__)]
    return digest(files) + os.environ.get("MEMSERVER_HOME", "")


def engine_unwanted() -> str:
    """Why the local engine is left out; empty if it is wanted."""
    if os.environ.get("MEMSERVER_SKIP_ENGINE") == "1":
        return "MEMSERVER_SKIP_ENGINE=1"
    named = os.environ.get("MEMSERVER_LLM_BASE_URL", "")
    if not named:
        try:
            dotenv = (REPOSITORY / ".env").read_text(encoding="utf-8")
        except OSError:
            return ""
        found = re.search(r"(?im)^\s*(?:export +)?MEMSERVER_LLM_BASE_URL *= *(\S+)", dotenv)
        named = found[1] if found else ""
    return f"the model is at {named}" if named else ""


def digest(files: list[Path]) -> str:
    """A short hash of the files' contents."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


# --- the steps


def make_environment() -> str:
    """Create .venv with the venv module, or with virtualenv where the system's Python lacks ensurepip."""
    if environment_key():
        return f"kept, Python {environment_key()}"
    if VENV.exists() and not (VENV / "pyvenv.cfg").exists() and any(VENV.iterdir()):
        raise StepError(f"{VENV} exists and is no virtual environment.", "Move it away.")
    shutil.rmtree(VENV, ignore_errors=True)
    first = attempt(sys.executable, "-m", "venv", VENV)
    if first.returncode or not environment_key():
        shutil.rmtree(VENV, ignore_errors=True)
        make_with_virtualenv(first.stdout)
    return f"Python {environment_key()}"


def make_with_virtualenv(first_output: str) -> None:
    """Create .venv with a virtualenv that is installed for this once, in a private directory."""
    with tempfile.TemporaryDirectory(prefix="memserver-virtualenv-") as private:
        second = attempt(sys.executable, "-m", "pip", "install", "--target", private, "virtualenv")
        if second.returncode == 0:
            second = attempt(
                sys.executable, "-m", "virtualenv", VENV, environment={"PYTHONPATH": private}
            )
    if second.returncode or not environment_key():
        version = ".".join(map(str, sys.version_info[:2]))
        raise StepError(
            f"{first_output}\n{second.stdout}",
            f"Install Python's venv module (Debian, Ubuntu: apt install python{version}-venv) or pip, "
            "and run make install again.",
        )


def install_torch() -> str:
    """Install torch's CPU build first: plain torch brings gigabytes of CUDA on Linux."""
    present = attempt(
        PYTHON, "-c", "import importlib.metadata as m; print(m.version('torch'))"
    ).stdout.strip()
    if present.split("+")[0] == TORCH:
        return f"kept, {present}"
    if sys.platform == "darwin":
        install("Check the connection to the package index.", f"torch=={TORCH}")
        return TORCH
    wanted = f"torch=={TORCH}+cpu"
    if try_install(wanted).returncode:
        index = os.environ.get("MEMSERVER_TORCH_INDEX", TORCH_INDEX)
        advice = (
            f"{wanted} is neither on your default package index nor on {index}. Set MEMSERVER_TORCH_INDEX to an "
            f"index that has it, or install any build yourself: .venv/bin/pip install torch=={TORCH}"
        )
        install(advice, "--extra-index-url", index, wanted)
    return f"{TORCH}+cpu"


def install_memserver() -> None:
    """Install this checkout, editable, with the locked versions of what it needs."""
    install(
        "See what pip says above: it needs a package index that answers, and versions that fit (make lock).",
        "--editable",
        f"{REPOSITORY}[local,files,otel,train,eval,colbench,dev]",
        "--constraint",
        REPOSITORY / "constraints" / "server.txt",
    )
    # The byte code of what a start imports, which would else cost the first start seconds; that of all
    # packages would cost a minute here.
    imported = "import memserver.cli.main, memserver.api.app, sentence_transformers"
    outcome = attempt(PYTHON, "-c", imported, environment={"PYTHONDONTWRITEBYTECODE": ""})
    if outcome.returncode:
        raise StepError(outcome.stdout, "Remove .venv and run make install again.")


def install_engine() -> str | None:
    """Install the engine that runs the local model, in its own environment."""
    if reason := engine_unwanted():
        return f"skipped, {reason}"
    outcome = attempt(VENV / "bin" / "memserver", "engine", "install")
    if outcome.returncode:
        raise StepError(
            outcome.stdout,
            "Fix what it names and run make install again; or set MEMSERVER_LLM_BASE_URL to a model served "
            "elsewhere, and the engine is left out.",
        )
    return None


# --- running commands


def install(advice: str, *arguments: str | Path) -> None:
    """Install, or fail with pip's last words and the advice."""
    outcome = try_install(*arguments)
    if outcome.returncode:
        raise StepError(outcome.stdout, advice)


def try_install(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Install by uv, which takes a fifth of pip's time; what uv can't install, pip tries."""
    if command := uv_install():
        words, variables = command
        outcome = attempt(*words, *arguments, environment=variables)
        if not outcome.returncode:
            return outcome
    # Byte code is left to the first import, which saves much time on torch.
    return attempt(PYTHON, "-m", "pip", "install", "--no-compile", "--progress-bar=off", *arguments)


@cache
def uv_install() -> tuple[list[str | Path], dict[str, str]] | None:
    """The command and variables by which uv installs as pip is configured to; None where uv can't."""
    listed = attempt(PYTHON, "-m", "pip", "config", "list").stdout
    found = re.findall(r"(?m)^(global|install|:env:)\.([\w-]+)=(.*)$", listed)
    found.sort(key=lambda each: ["global", "install", ":env:"].index(each[0]))  # the last one wins
    configured = {name: str(literal_eval(value)).split() for _, name, value in found}
    if not configured.keys() <= {*UV_OPTIONS, *UV_VARIABLES, *INDIFFERENT_TO_UV}:
        return None
    if attempt(PYTHON, "-m", "pip", "install", "--quiet", UV).returncode:
        return None
    options = [f"--{name}={value}" for name in UV_OPTIONS for value in configured.get(name, [])]
    variables = {
        variable: configured[name][0]
        for name, variable in UV_VARIABLES.items()
        if name in configured
    }
    options += [
        f"--python={PYTHON}",
        "--index-strategy=unsafe-best-match",
    ]  # of all indexes, as pip
    return [VENV / "bin" / "uv", "pip", "install", *options], variables


def attempt(
    *command: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with its output kept; its last line is what the step is doing."""
    variables = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    lines = []
    try:
        with subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            cwd=REPOSITORY,
            env={**os.environ, **variables, **(environment or {})},
        ) as process:
            for line in process.stdout or ():
                lines.append(line)
                if line.strip() and not line.startswith("WARNING"):
                    Progress.doing = line.strip()
    except OSError as error:
        return subprocess.CompletedProcess([], 127, stdout=str(error))
    return subprocess.CompletedProcess([], process.returncode, stdout="".join(lines))


if __name__ == "__main__":
    sys.exit(main())
