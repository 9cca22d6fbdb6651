"""Where the engine of a running `memserver serve` listens, told to commands beside it by a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def told_in(file: Path, url: str) -> Iterator[None]:
    """The file holds the engine's URL while the block runs; a killed server leaves it behind."""
    file.write_text(url, encoding="utf-8")
    try:
        yield
    finally:
        if read_address(file) == url:  # else another server has come since
            file.unlink()


def read_address(file: Path) -> str | None:
    """The engine's URL; None where no server has told it."""
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
