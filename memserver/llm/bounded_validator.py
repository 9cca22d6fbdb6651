"""Applies JSON schemas with bounded work: each look at a value may apply so many keywords, and take so long.

Patterns run in RE2, whose time grows with the text and never explodes.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from time import thread_time
from typing import Any, TypeVar

import attrs
import re2
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError

from memserver.errors import InvalidInput, ProtocolViolation
from memserver.messages import JsonValue

MOST_PATTERN = 1000
"""Characters of a pattern."""
MOST_PROGRAM = 10_000
"""Instructions that RE2 may make of a pattern."""

_SMALL = 16_000
T = TypeVar("T")
Validator = Any
"""A BoundedValidator: jsonschema makes its class."""


class TooMuchWork(Exception):
    """A look at a value took more work than it may."""


class _Work:
    def __init__(self, steps: int, seconds: float) -> None:
        self.left = steps
        self.until = thread_time() + seconds


_work: ContextVar[_Work | None] = ContextVar("_work", default=None)


async def run_bounded(look: Callable[[], T], size: int) -> T:
    """What a look at a value of about `size` characters returns, in a thread where it takes long.

    The look is called again if the first, short try was given up.

    Raises:
        ProtocolViolation: it takes too much work.
    """
    if size <= _SMALL:
        try:
            with limited_to(2_000, 0.03):
                return look()
        except TooMuchWork:
            pass
    return await asyncio.to_thread(_whole_look, look)


def _whole_look(look: Callable[[], T]) -> T:
    try:
        with limited_to(100_000, 2.0):
            return look()
    except TooMuchWork:
        raise ProtocolViolation(
            "The arguments of the model's call take too long to check.",
            complaint="The call's arguments take too long to check. Make a smaller and simpler call.",
        ) from None


@contextmanager
def limited_to(steps: int, seconds: float) -> Iterator[None]:
    """Limit the block to so many keywords of `BoundedValidator` and seconds of CPU; TooMuchWork is raised beyond."""
    token = _work.set(_Work(steps, seconds))
    try:
        yield
    finally:
        _work.reset(token)


def _spend(steps: int) -> None:
    work = _work.get()
    if work is None:
        return
    before, work.left = work.left, work.left - steps
    if work.left < 0 or ((before ^ work.left) >> 4 and thread_time() > work.until):
        raise TooMuchWork


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = 1 << 20
_CODE_POINT = re.compile(r"\\u([0-9A-Fa-f]{4})")


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Validator:
    """A pattern in RE2. Raises InvalidInput."""
    if len(pattern) > MOST_PATTERN:
        raise InvalidInput(f"a pattern has more than {MOST_PATTERN} characters.")
    try:
        made = re2.compile(_CODE_POINT.sub(r"\\x{\1}", pattern), _OPTIONS)
    except (re2.error, UnicodeError) as error:
        raise InvalidInput(
            f"the pattern {pattern[:100]!r} can't be used: patterns are those of RE2, which looks neither "
            "ahead nor back."
        ) from error
    if made.programsize > MOST_PROGRAM:
        raise InvalidInput(f"the pattern {pattern[:100]!r} repeats too much.")
    return made


def _found(pattern: str, text: str) -> bool:
    expression = compile_pattern(pattern)
    _spend(expression.programsize * len(text) // 10_000)
    return expression.search(text) is not None


Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


def _count(apply: Keyword) -> Keyword:
    def counted(
        validator: Validator, value: JsonValue, instance: JsonValue, schema: JsonValue
    ) -> Validator:
        _spend(1 + len(value) // 8 if isinstance(value, list) else 1)
        return apply(validator, value, instance, schema)

    return counted


def _pattern(
    _validator: Validator, value: str, instance: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(value, instance):
        yield ValidationError(f"{instance[:100]!r} does not match {value!r}")


def _pattern_properties(
    validator: Validator, value: Mapping[str, Any], instance: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, schema in value.items():
        for name, member in instance.items():
            if _found(pattern, name):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Validator, value: JsonValue, instance: JsonValue, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [
        name
        for name in instance
        if name not in named and not any(_found(pattern, name) for pattern in patterns)
    ]
    if isinstance(value, dict):
        for name in extra:
            yield from validator.descend(instance[name], value, path=name)
    elif not value and extra:
        shown = ", ".join(repr(name) for name in extra[:10])
        yield ValidationError(f"additional properties are not allowed: {shown}")


def _unique_items(
    _validator: Validator, value: JsonValue, instance: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    if value and isinstance(instance, list) and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("the items are not all different")


def _hashable(value: JsonValue) -> Validator:
    _spend(1)
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((key, _hashable(member)) for key, member in value.items())
    return (bool, value) if isinstance(value, bool) else value


def _any_of(
    validator: Validator, value: list[Any], instance: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    """Theirs keeps every error of every choice, which may be millions."""
    if not any(validator.evolve(schema=each).is_valid(instance) for each in value):
        yield ValidationError(f"{_shown(instance)} fits none of the choices")


def _one_of(
    validator: Validator, value: list[Any], instance: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    fitting = sum(validator.evolve(schema=each).is_valid(instance) for each in value)
    if fitting != 1:
        yield ValidationError(f"{_shown(instance)} fits {fitting or 'none'} of the choices")


def _shown(instance: JsonValue) -> str:
    return repr(instance)[:200]


_OWN: dict[str, Keyword] = {
    "anyOf": _any_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
_KEYWORDS: dict[str, Any] = {**Draft202012Validator.VALIDATORS, **_OWN}
BoundedValidator: Validator = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {keyword: _count(apply) for keyword, apply in _KEYWORDS.items()}
)
# Theirs would take the class that `$schema` names, inside of a schema as well.
BoundedValidator.evolve = attrs.evolve
