"""Which JSON schemas of somebody else's are taken: those that can be applied with bounded work."""

import sys
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

from memserver.errors import InvalidInput
from memserver.llm.bounded_validator import (
    BoundedValidator,
    TooMuchWork,
    compile_pattern,
    limited_to,
)
from memserver.messages import JsonObject, JsonValue

MOST_NESTED = 32
MOST_SCHEMAS = 1000
MOST_APPLIED = 1000
"""Schemas that one value may be held to at once, references followed."""
MOST_IN_A_ROW = 40
"""References and combinations that lead from one to the next without going deeper into the value."""
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


def without_unusable_patterns(schema: JsonValue) -> JsonValue:
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
            compile_pattern(pattern)


def _inner(schema: JsonObject) -> Iterator[Any]:
    for key in _ONE:
        yield schema.get(key)
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    for key in _NAMED:
        if isinstance(schema.get(key), dict):
            yield from schema[key].values()


def _target(root: JsonObject, reference: str) -> JsonValue:
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
    root: JsonObject, schema: JsonValue, known: dict[int, tuple[int, int]], above: frozenset[int]
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


def _is_usable(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except InvalidInput:
        return False
    return True
