"""Text at the boundary: what can't be stored or tokenized is cleaned, what is too large is refused."""

import re
import sys
from collections.abc import Sized
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any

MOST_NESTED = 100
"""Levels of objects and lists in JSON that somebody else sent; a schema of arguments can have some."""
MOST_TEXT = 1_500_000  # characters of one text in it
MOST_METADATA = 64_000  # characters of a thing's metadata, written as JSON
MOST_MEMBERS = 20_000  # of one list
MOST_NAMES = 2_000  # of one object
_LARGEST = int(sys.float_info.max)
"""Most readers of JSON take a larger number as infinite, and arithmetic with a float fails on it."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_PIECE = 100_000  # characters that are cleaned at once: no other thread runs meanwhile


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of a text, in characters; `end` is after its last one."""

    start: int
    end: int


def clean(text: str) -> str:
    """Replace what neither Postgres nor a tokenizer takes: NUL goes, lone surrogates become U+FFFD.

    A surrogate pair that came in as two halves (JSON may escape one character so) becomes that character.
    """
    if "\0" in text:
        text = text.replace("\0", "")
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
    return "".join(_SURROGATE.sub("\ufffd", piece) for piece in pieces)


def clean_json(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """`clean` for every text in a JSON value, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean_json(item) for key, item in value.items()}
    return value


def checked_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """`clean_json` for what somebody else sent.

    Raises:
        ValueError: it nests too deep, something in it is too large, or it holds a number that JSON can't (NaN,
            or beyond a double's range).
    """
    if isinstance(value, str):
        if len(value) > MOST_TEXT:
            raise ValueError(f"a text in it has more than {MOST_TEXT} characters")
        return clean(value)
    if isinstance(value, dict):
        _check_size(value, "an object", MOST_NAMES, depth)
        return {checked_json(name): checked_json(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        _check_size(value, "a list", MOST_MEMBERS, depth)
        return [checked_json(each, depth + 1) for each in value]
    if isinstance(value, float | int) and not -_LARGEST <= value <= _LARGEST:  # NaN isn't either
        raise ValueError("it holds what JSON can't: a number that is none, or is too large")
    return value


def _check_size(value: Sized, kind: str, most: int, depth: int) -> None:
    if depth >= MOST_NESTED:
        raise ValueError(f"it nests too deep: {MOST_NESTED} levels are taken")
    if len(value) > most:
        raise ValueError(f"{kind} in it has more than {most} members")


def is_within(value: Any, most: int) -> bool:  # noqa: ANN401 - any JSON
    """Whether a JSON value takes about `most` characters at most; it is not written out for that."""
    size, unseen = 0, [value]
    while unseen and size <= most:
        each = unseen.pop()
        size += 2
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            size += sum(map(len, each)) + 4 * len(each)
            unseen += each.values()
        elif isinstance(each, list):
            size += len(each)
            unseen += each
    return size <= most


@lru_cache(maxsize=20_000)  # a prompt has the times of all its messages, in every turn
def stamp(at: datetime, zone: tzinfo) -> str:
    """A time as a model reads it, in the agent's zone: 2026-02-07 14:03."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def snippet(text: str, characters: int) -> str:
    """The text on one line, cut with an ellipsis when it is longer than `characters`."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"
