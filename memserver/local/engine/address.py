"""Where the engine of a running `memserver serve` listens, published to other commands by a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def publish_address(file: Path, url: str) -> Iterator[None]:
    """The file holds the engine's URL, and whose it is, while the block runs."""
    text = f"{url}\n{os.getpid()}\n"
    file.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if file.read_text(encoding="utf-8") == text:  # else another server has come since
                file.unlink()


def read_address(file: Path) -> str | None:
    """The engine's URL; None where no server has published it, or it was killed."""
    try:
        url, _, owner = file.read_text(encoding="utf-8").partition("\n")
        os.kill(int(owner), 0)
    except PermissionError:
        return url  # it lives, and is somebody else's
    except (OSError, ValueError):
        return None
    return url
