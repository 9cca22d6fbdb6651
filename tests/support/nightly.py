"""How often a test does what it does again and again: a few times usually, and for hours in `make nightly`."""

import os

NIGHTLY = bool(os.environ.get("NIGHTLY"))


def times(usually: int, nightly: int) -> int:
    """One of the two."""
    return nightly if NIGHTLY else usually
