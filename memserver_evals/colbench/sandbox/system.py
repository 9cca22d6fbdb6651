"""The C library and the kernel, called with errors as exceptions."""

import ctypes
import os
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
"""The C library of this process."""


def call(function: Any, *arguments: Any) -> int:  # noqa: ANN401 - ctypes has no types for these
    """The result of a C function that reports a failure by a negative number. Raises OSError: it failed."""
    result = int(function(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
