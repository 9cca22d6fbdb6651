"""What sandboxed code returned, as this process sees it: data that is compared strictly by type.

`1`, `1.0` and `True` differ, as do `[1]` and `(1,)`, at any depth. A float is compared exactly; NaN equals
NaN, and 0.0 equals -0.0. The order in a set or a dict counts nothing; OrderedDict, defaultdict and Counter
are dicts. An instance of any other class equals nothing, whatever its own `__eq__` says.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, get_args

Stop = Literal["time", "ended", "output"]
"""Why a call gave neither a value nor an exception: out of time, its process ended, too much came out."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call ended; exactly one of the first three is set."""

    value: str | None = None  # what it returned, in a form that equal values share, or None
    error: str = ""  # the type and message of the exception that it raised, or an empty string
    stop: Stop | None = None  # why it was cut off, or None
    comparable: bool = True  # False for a value that can equal no other one

    def equals(self, other: "CallOutcome") -> bool:
        return (
            self.value is not None
            and self.comparable
            and other.comparable
            and self.value == other.value
        )

    def equals_by_operator(self, other: "CallOutcome") -> bool:
        """As the released evaluator compares: `1 == 1.0 == True`, NaN equals nothing, and None never counts.

        What isn't plain data of Python's own is compared as in `equals`.
        """
        if self.value in {None, "null"} or other.value is None:
            return False
        if not (self.comparable and other.comparable):
            return False
        try:
            mine, its = (_plain(json.loads(str(each.value))) for each in (self, other))
        except (ValueError, TypeError, RecursionError):
            return False  # no value is written so
        return bool(mine == its)

    @property
    def shown(self) -> str:
        return (self.value if self.value is not None else self.error or f"stopped: {self.stop}")[
            :300
        ]


class _Malformed(ValueError):
    """The line is none that the encoder writes."""


class _Opaque(ValueError):
    """A value that equals nothing."""


def read_outcome(line: str) -> CallOutcome:
    """One line that came out of the sandbox. Nothing in it is trusted."""
    try:
        kind, content = json.loads(line)
        if kind == "error" and isinstance(content, str):
            return CallOutcome(error=content[:1000])
        if kind == "stop" and content in get_args(Stop):
            return CallOutcome(stop=content)
        if kind != "value":
            raise _Malformed
        return CallOutcome(value=json.dumps(_canonical(content)))
    except _Opaque as error:
        return CallOutcome(value=f"an object of type {error}", comparable=False)
    except (ValueError, TypeError, RecursionError):
        return CallOutcome(error="the result can't be read")


def _canonical(content: Any) -> Any:  # noqa: ANN401 - JSON
    if content is None or isinstance(content, bool | str):
        return content
    if not isinstance(content, list) or not content or not isinstance(content[0], str):
        raise _Malformed
    name, *parts = content
    if name == "opaque":
        raise _Opaque(*parts)
    if name in {"list", "tuple"}:
        return [name, *map(_canonical, parts)]
    if name in {"set", "frozenset"}:
        return [name, *sorted(json.dumps(_canonical(part)) for part in parts)]
    if name == "dict":
        pairs = [(json.dumps(_canonical(key)), _canonical(value)) for key, value in parts]
        return [name, *sorted(pairs, key=lambda pair: pair[0])]
    if name == "numpy":
        return [name, str(parts[0]), str(parts[1]), _canonical(parts[2])]
    return [name, _scalar(name, *parts)]


def _scalar(name: str, text: str) -> str:
    """A number, date or the like, each written in one way only."""
    if name == "float" and float(text) == 0:
        return "0.0"
    return text


def _plain(content: Any) -> Any:  # noqa: ANN401 - any plain value
    """The value that a canonical form is of, made again here."""
    match content:
        case ["int", text]:
            return int(text, 16)
        case ["float", text]:
            return float(text)
        case ["list", *parts]:
            return [_plain(part) for part in parts]
        case ["tuple", *parts]:
            return tuple(_plain(part) for part in parts)
        case ["set" | "frozenset", *parts]:
            return frozenset(_plain(json.loads(part)) for part in parts)
        case ["dict", *pairs]:
            return {_plain(json.loads(key)): _plain(value) for key, value in pairs}
        case [*parts]:
            return tuple(map(str, parts))
        case _:
            return content
