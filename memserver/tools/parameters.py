"""The schema of a tool's arguments, where somebody else wrote it."""

import json
from collections.abc import Iterator
from typing import Any

from memserver.errors import InvalidInput, ProtocolViolation
from memserver.llm.tool_schema import check_arguments, check_schema
from memserver.messages import JsonObject, ToolSpec
from memserver.tools.signature import RESERVED

MOST_BYTES = 64_000


def checked_parameters(parameters: JsonObject) -> JsonObject:
    """A JSON schema of a call's arguments, if it is one that a model can be held to.

    Raises:
        InvalidInput: it is none, it is too large, it refers to what isn't in it, or it names an argument
            that is ours.
    """
    try:
        size = len(json.dumps(parameters, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "parameters: the schema holds what JSON can't, or nests too deep."
        ) from error
    if size > MOST_BYTES:
        raise InvalidInput(f"parameters: the schema has more than {MOST_BYTES} bytes.")
    properties = parameters.get("properties", {})
    if not isinstance(properties, dict):
        raise InvalidInput("parameters: properties must be an object.")
    for name in RESERVED:
        if name in properties:
            raise InvalidInput(
                f"parameters: the argument {name} is added to every tool; name yours otherwise."
            )
    spec = ToolSpec("parameters", "", parameters)
    try:
        check_schema(spec)
        for schema in _inside(parameters):
            _check_reference(parameters, schema)
        check_arguments(spec, {})
    except ProtocolViolation:
        pass  # it asks for arguments, as it may
    except RecursionError as error:
        raise InvalidInput("parameters: the schema nests too deep.") from error
    return parameters


def _inside(value: Any) -> Iterator[JsonObject]:  # noqa: ANN401 - a schema, or any value inside one
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from _inside(member)
    elif isinstance(value, list):
        for member in value:
            yield from _inside(member)


def _check_reference(root: JsonObject, schema: JsonObject) -> None:
    """Find what would fail only when the model calls: a reference to nowhere."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _is_there(root, reference):
        raise InvalidInput(f"parameters: {reference[:100]!r} refers to nothing in the schema.")


def _is_there(root: JsonObject, reference: str) -> bool:
    if not reference.startswith("#"):
        return False
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return False
    return True
