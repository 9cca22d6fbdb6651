"""Writes a value as JSON with its exact types, inside the sandboxed process.

Only plain data is written: what a class of the code's own is, or what it says of itself, is not asked. Such
a value is written as its type's name alone, and equals nothing. `values` reads the form and says what it is.
"""

import json
from collections import Counter, OrderedDict, defaultdict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

_DEPTH, _PARTS = 50, 100_000
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_BY_REPR = (
    *(datetime, date, time, timedelta, timezone, Decimal, Fraction, UUID),
    *(bytes, bytearray, complex, range),
)


_TYPES = {
    kind: kind.__name__
    for kind in (
        *(object, type, type(None), bool, int, float, complex, str, bytes, bytearray, range),
        *(list, tuple, set, frozenset, dict),
    )
}


def encode(value: Any) -> str:  # noqa: ANN401 - it is whatever the code returns
    return json.dumps(_Encoder().encode(value, 0))


class _Encoder:
    def __init__(self) -> None:
        self._parts = 0

    def encode(self, value: Any, depth: int) -> Any:  # noqa: ANN401
        kind = type(value)
        self._parts += 1
        if self._parts > _PARTS or depth > _DEPTH:
            return ["opaque", "a value too large to compare"]
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return ["int", hex(value)]  # no limit of digits, and fast
        if kind is float:
            return ["float", repr(value)]
        if name := _SEQUENCES.get(kind):
            return [name, *(self.encode(item, depth + 1) for item in value)]
        if kind in _MAPPINGS:
            return [
                "dict",
                *([self.encode(part, depth + 1) for part in pair] for pair in dict.items(value)),
            ]
        if kind is type and value in _TYPES:
            return ["type", _TYPES[value]]
        if kind in _BY_REPR:
            return [kind.__name__, repr(value)]
        if kind.__module__ == "numpy" and hasattr(value, "tolist"):
            return [
                "numpy",
                kind.__name__,
                str(value.dtype),
                self.encode(value.tolist(), depth + 1),
            ]
        return ["opaque", kind.__name__[:80]]
