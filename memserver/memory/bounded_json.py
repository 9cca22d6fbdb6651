"""JSON that somebody else sent, read with bounded work. The parser lets no other thread run meanwhile."""

import json
from typing import Any

from memserver.text import checked_json

MOST_VALUES = 1_000_000
"""Commas, colons and brackets, those of texts included: what reading and checking costs."""
_MOST_DIGITS = 400
_SLICE = 1_000_000


class TooManyValues(ValueError):
    """It holds more values than are read."""

    def __init__(self) -> None:
        super().__init__(f"it holds more than {MOST_VALUES} values")


class NotTaken(ValueError):
    """It is JSON, but holds what is not taken."""


def read_bounded(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value, its text cleaned.

    Raises:
        TooManyValues: it holds too many.
        NotTaken: it nests too deep, or something in it is too large.
        ValueError: it is no JSON.
        RecursionError: it nests deeper than JSON can be read.
    """
    count = 0
    for start in range(0, len(body), _SLICE):
        part = body[start : start + _SLICE]
        count += sum(map(part.count, (b",", b":", b"[", b"{")))
        if count > MOST_VALUES:
            raise TooManyValues
    value = _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    try:
        return checked_json(value)
    except ValueError as error:
        raise NotTaken(str(error)) from error


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise NotTaken(f"a number in it has more than {_MOST_DIGITS} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)
