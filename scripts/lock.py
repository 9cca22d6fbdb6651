"""Write constraints/server.txt again from pyproject.toml; what `make lock` runs.

uv resolves for every platform at once. Its lines for torch are replaced by one plain pin: which build of
torch, with CUDA or without, is the choice of who installs, so nothing that only CUDA builds need is locked.

Versions that still fit are kept. Arguments go to uv: `make lock ARGS=--upgrade`, `ARGS='--upgrade-package httpx'`.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK = REPOSITORY / "constraints" / "server.txt"
EXTRAS = ("local", "otel", "files", "train", "eval", "colbench", "dev")
TORCH = "torch==2.13.0"
DROPPED = re.compile(r"^(nvidia-|triton|cuda-|httpx2-jsfetch|torch==)")


def main() -> int:
    """Resolve, filter, write; uv's exit code if it fails."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "locked.txt"
        shutil.copyfile(LOCK, output)  # uv keeps the versions it finds there
        answer = subprocess.run(
            [
                *uv(),
                "pip",
                "compile",
                str(REPOSITORY / "pyproject.toml"),
                *[flag for extra in EXTRAS for flag in ("--extra", extra)],
                "--python-version=3.11",
                "--universal",
                "--no-annotate",
                "--no-header",
                f"--output-file={output}",
                *sys.argv[1:],
            ],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if answer.returncode:
            return answer.returncode
        resolved = output.read_text(encoding="utf-8").splitlines()
    lines = sorted([TORCH, *(line for line in resolved if not DROPPED.match(line))])
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{LOCK.relative_to(REPOSITORY)}: {len(lines)} pins")
    return 0


def uv() -> list[str]:
    """Uv's command: the one on the path, or one that is installed into this environment."""
    found = shutil.which("uv")
    if found:
        return [found]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "uv"], check=True, stdout=sys.stderr
    )
    return [sys.executable, "-m", "uv"]


if __name__ == "__main__":
    sys.exit(main())
