"""JSON schemas that somebody else wrote, checked and applied with bounded work.

Owns the bounds: what a schema may be made of (`check_bounds`), and how much work one look at a value may
take (`limited_to`). Patterns run in RE2, whose time grows with the text and never explodes. Leaves to
`tool_schema` what a tool's schema means.
"""

import asyncio
import re
import sys
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
from memserver.messages import JsonObject

MOST_NESTED = 32
MOST_SCHEMAS = 1000
MOST_APPLIED = 1000
"""Schemas that one value may be held to at once, references followed."""
MOST_IN_A_ROW = 40
"""References and combinations that lead from one to the next without going deeper into the value."""
MOST_PATTERN = 1000
"""Characters of a pattern."""
MOST_PROGRAM = 10_000
"""Instructions that RE2 may make of a pattern."""

_SMALL = 16_000
T = TypeVar("T")

_ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_REFUSED = frozenset(
    {"$anchor", "$dynamicAnchor", "$dynamicRef", "unevaluatedItems", "unevaluatedProperties"}
)


def check_bounds(schema: JsonObject) -> None:
    """Check that a schema can be applied with bounded work, whatever the value.

    Raises:
        InvalidInput: it can't, or a reference in it leads nowhere.
    """
    _check_values(schema)
    seen: dict[int, JsonObject] = {}
    unseen: list[Any] = [schema]
    while unseen:
        each = unseen.pop()
        if not isinstance(each, dict) or id(each) in seen:
            continue
        seen[id(each)] = each
        if len(seen) > MOST_SCHEMAS:
            raise InvalidInput(f"the schema holds more than {MOST_SCHEMAS} schemas.")
        _check_keywords(each, is_root=each is schema)
        unseen += _inner(each)
        if isinstance(each.get("$ref"), str):
            unseen.append(_target(schema, each["$ref"]))
    applied: dict[int, tuple[int, int]] = {}
    for each in seen.values():
        _count(schema, each, applied, frozenset())


def check_is_schema(schema: JsonObject) -> None:
    """Check that it is a JSON schema. Raises InvalidInput."""
    try:
        with limited_to(500_000, 2.0):
            error = next(
                BoundedValidator(Draft202012Validator.META_SCHEMA).iter_errors(schema), None
            )
    except (TooMuchWork, RecursionError):
        raise InvalidInput("the schema is too large to be checked.") from None
    if error is not None:
        raise InvalidInput(f"it is no JSON schema: {error.message[:300]}")


def without_unusable_patterns(schema: Any) -> Any:  # noqa: ANN401 - a schema, or any value inside one
    """The schema without patterns that RE2 can't take, such as those that look ahead."""
    if isinstance(schema, list):
        return [without_unusable_patterns(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_unusable_patterns(value)
        for key, value in schema.items()
        if not (key == "pattern" and isinstance(value, str) and not _is_usable(value))
    }


class TooMuchWork(Exception):
    """A look at a value took more work than it may."""


class _Work:
    def __init__(self, steps: int, seconds: float) -> None:
        self.left = steps
        self.until = thread_time() + seconds


_work: ContextVar[_Work | None] = ContextVar("_work", default=None)


async def bounded(look: Callable[[], T], size: int) -> T:
    """What a look at a value returns, in a thread where it takes long.

    Args:
        look: checks values; called again if the first, short try was given up.
        size: characters that it looks at.

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
            "The call's arguments take too long to check. Make a smaller and simpler call."
        ) from None


@contextmanager
def limited_to(steps: int, seconds: float) -> Iterator[None]:
    """Limit the work of `BoundedValidator` inside the block; there it raises TooMuchWork.

    Args:
        steps: keywords of schemas that may be applied.
        seconds: of the thread's CPU.
    """
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


def _check_values(schema: JsonObject) -> None:
    unseen: list[tuple[Any, int]] = [(schema, 1)]
    while unseen:
        value, depth = unseen.pop()
        if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
            raise InvalidInput("the schema holds a number that is too large.")
        if isinstance(value, dict | list):
            if depth > MOST_NESTED:
                raise InvalidInput(f"the schema nests too deep: {MOST_NESTED} levels are taken.")
            members = value.values() if isinstance(value, dict) else value
            unseen += [(member, depth + 1) for member in members]


def _check_keywords(schema: JsonObject, *, is_root: bool) -> None:
    refused = _REFUSED if is_root else _REFUSED | {"$id"}
    for keyword in refused & schema.keys():
        raise InvalidInput(f"the schema has {keyword}, whose cost can't be bounded: leave it out.")
    patterns = [schema["pattern"]] if "pattern" in schema else []
    named = schema.get("patternProperties")
    for pattern in [*patterns, *(named if isinstance(named, dict) else ())]:
        if isinstance(pattern, str):
            compiled(pattern)


def _inner(schema: JsonObject) -> Iterator[Any]:
    for key in _ONE:
        yield schema.get(key)
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    for key in _NAMED:
        if isinstance(schema.get(key), dict):
            yield from schema[key].values()


def _target(root: JsonObject, reference: str) -> Any:  # noqa: ANN401 - whatever stands there
    found: Any = root if reference == "#" or reference.startswith("#/") else None
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name[:9]) < len(found):
            found = found[int(name[:9])]
        else:
            found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict | bool):
        raise InvalidInput(f"{reference[:100]!r} refers to nothing in the schema.")
    return found


def _count(
    root: JsonObject,
    schema: Any,  # noqa: ANN401
    known: dict[int, tuple[int, int]],
    above: frozenset[int],
) -> tuple[int, int]:
    """How many schemas hold one value to this one, and over how many levels they lead."""
    if not isinstance(schema, dict):
        return 1, 1
    if id(schema) in known:
        return known[id(schema)]
    if id(schema) in above:
        raise InvalidInput("a reference in the schema leads in a circle.")
    if len(above) > MOST_IN_A_ROW:
        raise InvalidInput("the schema's references and combinations lead on too far.")
    inside = above | {id(schema)}
    parts = [_count(root, each, known, inside) for each in _of_same_value(root, schema)]
    counted = 1 + sum(part[0] for part in parts), 1 + max((part[1] for part in parts), default=0)
    if counted[0] > MOST_APPLIED or counted[1] > MOST_IN_A_ROW:
        raise InvalidInput(
            f"the schema can't be checked: its references make it hold one value to more than "
            f"{MOST_APPLIED} schemas, or over more than {MOST_IN_A_ROW} levels."
        )
    known[id(schema)] = counted
    return counted


def _of_same_value(root: JsonObject, schema: JsonObject) -> Iterator[Any]:
    if isinstance(schema.get("$ref"), str):
        yield _target(root, schema["$ref"])
    for key in _SAME_VALUE:
        value = schema.get(key)
        if key == "dependentSchemas" and isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
        elif isinstance(value, dict):
            yield value


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = 1 << 20
_CODE_POINT = re.compile(r"\\u([0-9A-Fa-f]{4})")


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:  # noqa: ANN401 - RE2 has no types
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


def _is_usable(pattern: str) -> bool:
    try:
        compiled(pattern)
    except InvalidInput:
        return False
    return True


def _found(pattern: str, text: str) -> bool:
    expression = compiled(pattern)
    _spend(expression.programsize * len(text) // 10_000)
    return expression.search(text) is not None


Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


def _counted(apply: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:  # noqa: ANN401
        _spend(1 + len(value) // 8 if isinstance(value, list) else 1)
        return apply(validator, value, instance, schema)

    return counted


def _pattern(
    _validator: Any,  # noqa: ANN401
    value: str,
    instance: Any,  # noqa: ANN401
    _schema: Any,  # noqa: ANN401
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(value, instance):
        yield ValidationError(f"{instance[:100]!r} does not match {value!r}")


def _pattern_properties(
    validator: Any,  # noqa: ANN401
    value: Mapping[str, Any],
    instance: Any,  # noqa: ANN401
    _schema: Any,  # noqa: ANN401
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, schema in value.items():
        for name, member in instance.items():
            if _found(pattern, name):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any,  # noqa: ANN401
    value: Any,  # noqa: ANN401
    instance: Any,  # noqa: ANN401
    schema: Mapping[str, Any],
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
    _validator: Any,  # noqa: ANN401
    value: Any,  # noqa: ANN401
    instance: Any,  # noqa: ANN401
    _schema: Any,  # noqa: ANN401
) -> Iterator[ValidationError]:
    if value and isinstance(instance, list) and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("the items are not all different")


def _hashable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    _spend(1)
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((key, _hashable(member)) for key, member in value.items())
    return (bool, value) if isinstance(value, bool) else value


def _any_of(
    validator: Any,  # noqa: ANN401
    value: list[Any],
    instance: Any,  # noqa: ANN401
    _schema: Any,  # noqa: ANN401
) -> Iterator[ValidationError]:
    """Theirs keeps every error of every choice, which may be millions."""
    if not any(validator.evolve(schema=each).is_valid(instance) for each in value):
        yield ValidationError(f"{_shown(instance)} fits none of the choices")


def _one_of(
    validator: Any,  # noqa: ANN401
    value: list[Any],
    instance: Any,  # noqa: ANN401
    _schema: Any,  # noqa: ANN401
) -> Iterator[ValidationError]:
    fitting = sum(validator.evolve(schema=each).is_valid(instance) for each in value)
    if fitting != 1:
        yield ValidationError(f"{_shown(instance)} fits {fitting or 'none'} of the choices")


def _shown(instance: Any) -> str:  # noqa: ANN401
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
BoundedValidator: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {keyword: _counted(apply) for keyword, apply in _KEYWORDS.items()}
)
# Theirs would take the class that `$schema` names, inside of a schema as well.
BoundedValidator.evolve = attrs.evolve
