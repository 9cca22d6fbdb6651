"""Programs of other people, as a lock names them: installed once and kept in the environment."""

import os
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest


def installed(name: str, lock: Path, install: Callable[[Path], None]) -> Path:
    """The folder that `install` filled once for this lock. Skips the test, or fails it in CI, if that can't be."""
    digest = sha256(lock.read_bytes()).hexdigest()[:12]
    folder = Path(sys.prefix) / f"{name}-{digest}"
    if not folder.exists():
        made = folder.with_name(
            f"{folder.name}.{os.getpid()}"
        )  # others may install at the same time
        try:
            install(made)
            made.rename(folder)
        except (OSError, RuntimeError) as error:
            if not folder.exists():
                missing(f"The programs of {lock.name} could not be installed: {error}")
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def missing(reason: str) -> NoReturn:
    """Skip; but where everything must be tested, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
