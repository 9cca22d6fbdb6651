"""JSON that somebody else sent, read with bounded work. The parser lets no other thread run meanwhile."""

import json
from collections.abc import Iterator
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


def read_values(body: bytes) -> Iterator[Any]:
    """The members of a JSON array, or JSON values that follow each other, as one on each line; each is read by itself.

    Raises:
        TooManyValues: one holds too many.
        NotTaken: one nests too deep, or something in it is too large.
        ValueError: it is no JSON.
        RecursionError: one nests deeper than JSON can be read.
    """
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    at = _skip(text, 0)
    is_array = text.startswith("[", at)
    at = _skip(text, at + is_array)
    while at < len(text) and not (is_array and text[at] == "]"):
        value, at = _read_one(text, at)
        try:
            yield checked_json(value)
        except ValueError as error:
            raise NotTaken(str(error)) from error
        at = _skip(text, at)
    if is_array and at >= len(text):
        raise ValueError("its end is missing")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _BETWEEN and at < len(text):
        at += 1
    return at


def _read_one(text: str, at: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends, looked for in windows that grow."""
    size = _WINDOW
    while True:
        window = text[at : at + size]
        if sum(map(window.count, ",:[{")) > MOST_VALUES:
            raise TooManyValues
        try:
            value, end = _DECODER.raw_decode(window)
        except json.JSONDecodeError:
            if at + size >= len(text):
                raise
            size *= 4
        else:
            return value, at + end


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise NotTaken(f"a number in it has more than {_MOST_DIGITS} digits")
    return int(digits)


_BETWEEN = " \t\r\n,"
_WINDOW = 65_536
_DECODER = json.JSONDecoder(parse_int=_integer)
