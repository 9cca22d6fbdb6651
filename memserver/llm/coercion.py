"""Changes to a model's arguments that lose nothing.

Owns the list of what is forgiven. A value whose type the schema takes is never touched. Otherwise:

- "2" for an integer, "2.5" for a number, "true" or "False" for a boolean;
- 2.0 and "2.0" for an integer become 2; the integer 5 for a string becomes "5";
- JSON text of a list or an object, where a list or an object is wanted, is read.

The same holds for what is inside of lists and objects, unless it could be of more than one form.

Everything else is a violation, which the model is shown (`tool_arguments`).
"""

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any
from urllib.parse import unquote

from memserver.messages import JsonObject, JsonValue
from memserver.text import checked_json

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.0{1,17})?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")


def read_json(text: str) -> JsonValue:
    """Read JSON text as a model or an endpoint sends it.

    Raises:
        ValueError: it is no JSON, nests too deep, or has a number that JSON does not know.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None


def read_json_at(text: str, start: int) -> tuple[Any, int]:
    """Read the JSON value that starts at a place in a text; also where it ends.

    Raises:
        ValueError: as `read_json`.
    """
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it nests too deep") from None


def coerce(value: JsonValue, schema: JsonObject | bool, root: JsonObject) -> JsonValue:
    """The value, and all that is within it, in types that the schema takes, if they can be had without loss; else as it is.

    References of `schema`, an argument's, point into `root`, the whole one.
    """
    alternatives = list(_alternatives(schema, root, set()))
    wanted = frozenset().union(*map(_types, alternatives))
    if wanted and _type_of(value) not in wanted:
        value = _converted(value, wanted)
    if not isinstance(value, dict | list):
        return value
    fitting = [each for each in alternatives if _type_of(value) in _types(each)]
    if len(fitting) != 1:
        return value
    [only] = fitting
    if isinstance(value, list):
        items = only.get("items", True)
        return [coerce(each, items, root) for each in value]
    known, others = only.get("properties", {}), only.get("additionalProperties", True)
    return {name: coerce(each, known.get(name, others), root) for name, each in value.items()}


def _converted(value: JsonValue, wanted: frozenset[str]) -> JsonValue:
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return int(value) if "integer" in wanted and value.is_integer() else value
    if isinstance(value, int):
        return value if "number" in wanted or "string" not in wanted else str(value)
    return _from_text(value, wanted) if isinstance(value, str) else value


def _from_text(value: str, wanted: frozenset[str]) -> JsonValue:
    text = value.strip()
    if "integer" in wanted and _INTEGER.fullmatch(text):
        return int(text.partition(".")[0])
    if "number" in wanted and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if "boolean" in wanted and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if {"array", "object"} & wanted and text[:1] in {"[", "{"}:
        try:
            read = checked_json(read_json(text))
        except ValueError:
            return value
        return read if _type_of(read) in wanted else value
    return value


def _alternatives(
    schema: JsonObject | bool, root: JsonObject, followed: set[str]
) -> Iterator[JsonObject]:
    """The schemas with a type that a value may fit; each reference is followed once."""
    if not isinstance(schema, dict):
        return
    if "type" in schema:
        yield schema
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in followed:
        followed.add(reference)
        yield from _alternatives(_find(reference, root), root, followed)
    for kind in ("anyOf", "oneOf", "allOf"):
        for member in schema.get(kind, ()):
            yield from _alternatives(member, root, followed)


def _find(reference: str, root: JsonObject) -> JsonObject | bool:
    """What a reference into the schema points at; True, which takes everything, where that is nothing."""
    found: Any = root
    for part in unquote(reference).split("/")[1:] if reference.startswith("#") else ("",):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name, True) if isinstance(found, dict) else True
    return found if isinstance(found, dict) else True


def _types(schema: JsonObject) -> frozenset[str]:
    named = schema["type"]
    return frozenset({named}) if isinstance(named, str) else frozenset(named)


def _type_of(value: object) -> str:
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return "null"


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, parse_float=_finite)
