"""How often a test does what it does again and again: a few times usually, and for hours in `make nightly`."""

import os
from typing import TypeVar

NIGHTLY = bool(os.environ.get("NIGHTLY"))
T = TypeVar("T")


def times(usually: T, nightly: T) -> T:
    """One of the two."""
    return nightly if NIGHTLY else usually
