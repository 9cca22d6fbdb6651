"""Examples for the OpenAPI document, put together of those that stand beside the models' fields.

A field without an example of its own shows its default, its first allowed value, or what its format looks like.
A request leaves out what may be left out, unless its field has an example.
"""

from collections.abc import Sequence
from typing import Any

from memserver.messages import JsonObject

FORMATS = {
    "uuid": "0198f1c2-7a3b-7c4d-8e5f-0123456789ab",
    "date-time": "2026-02-07T14:03:00Z",
    "binary": "A text.",
}


class NoExample(LookupError):
    """A field says nothing of what it looks like; the message names it."""


def example(schema: JsonObject, document: JsonObject, *, sent: bool, name: str = "") -> Any:  # noqa: ANN401 - JSON
    """An example of a schema; `sent`: of a request. Raises NoExample: a field would have to be made up."""
    if "$ref" in schema:
        return example(_found(schema["$ref"], document), document, sent=sent, name=name)
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _first(schema[key], document, sent=sent, name=name)
    if schema.get("type") == "object":
        return {
            field: example(part, document, sent=sent, name=field)
            for field, part in schema.get("properties", {}).items()
            if not sent or _is_shown(field, part, schema)
        }
    if schema.get("type") == "array":
        return [example(schema["items"], document, sent=sent, name=name)]
    return _of_kind(schema, name)


def _first(choices: Sequence[JsonObject], document: JsonObject, *, sent: bool, name: str) -> Any:  # noqa: ANN401 - JSON
    """Of the first one; but null, where that is another one, rather than something made up."""
    try:
        return example(choices[0], document, sent=sent, name=name)
    except NoExample:
        if {"type": "null"} in choices:
            return None
        raise


def _of_kind(schema: JsonObject, name: str) -> str | bool | None:
    if schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    match schema.get("type"):
        case "boolean":
            return False
        case "null":
            return None
        case _:
            raise NoExample(name)


def _is_shown(field: str, part: JsonObject, schema: JsonObject) -> bool:
    return field in schema.get("required", ()) or "examples" in part


def _found(reference: str, document: JsonObject) -> JsonObject:
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    named: JsonObject = found
    return named
