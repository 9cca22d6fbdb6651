"""The schema of a tool's arguments, where somebody else wrote it."""

import json

from memserver.errors import InvalidInput
from memserver.llm.tool_arguments import check_schema
from memserver.messages import RESERVED, JsonObject, ToolSpec
from memserver.text import is_within
from memserver.tools.tool import call_schema

MOST_BYTES = 64_000


def check_parameters(parameters: JsonObject) -> JsonObject:
    """A JSON schema of a call's arguments, if it is one that a model can be held to.

    It takes up to some tenths of a second of CPU: call it in a thread.

    Raises:
        InvalidInput: it is none, it is too large, it takes unbounded work, it refers to what isn't in it, or
            it names an argument that is ours.
    """
    if not is_within(parameters, MOST_BYTES):
        raise InvalidInput(f"parameters: the schema has more than {MOST_BYTES} bytes.")
    try:
        size = len(json.dumps(parameters, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "parameters: the schema holds what JSON can't, or nests too deep."
        ) from error
    if size > MOST_BYTES:
        raise InvalidInput(f"parameters: the schema has more than {MOST_BYTES} bytes.")
    if parameters.get("type", "object") != "object":
        raise InvalidInput("parameters: the schema must be one of type object.")
    properties = parameters.get("properties", {})
    if not isinstance(properties, dict):
        raise InvalidInput("parameters: properties must be an object.")
    for name in RESERVED:
        if name in properties:
            raise InvalidInput(
                f"parameters: the argument {name} is added to every tool; name yours otherwise."
            )
    check_schema(ToolSpec("parameters", "", call_schema(parameters)))
    return parameters
