"""The schema of a JSON answer whose root is one object, for endpoints that refuse `anyOf` there.

OpenAI's strict mode does: https://developers.openai.com/api/docs/guides/structured-outputs ("Root objects must not be
anyOf"). The answer's form is the same, `{"tool": name, "arguments": {…}}`; only that these arguments are this tool's is
left to the check of the call.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from memserver.llm.tool_schema import native_tools_json
from memserver.messages import JsonObject, ToolSpec


def object_response_format_json(
    tools: Sequence[ToolSpec], extra: Mapping[str, Any] | None = None
) -> str:
    """The JSON text of the `response_format` that holds an answer to one object.

    It is strict where each tool's schema can be; what may be left out is null then, as in native tools.

    Args:
        tools: what may be called.
        extra: more for the schema's root.
    """
    return _written(native_tools_json(tools), json.dumps(dict(extra or {})))


@lru_cache(maxsize=64)
def _written(tools: str, extra: str) -> str:
    functions = [_with_own_definitions(tool["function"]) for tool in json.loads(tools)]
    arguments = [function["parameters"] for function in functions]
    definitions: JsonObject = {}
    for schema in arguments:
        definitions |= schema.pop("$defs", {})
    answer = {
        **json.loads(extra),
        "type": "object",
        "properties": {
            "tool": {"type": "string", "enum": [function["name"] for function in functions]},
            "arguments": {"anyOf": arguments} if len(arguments) > 1 else arguments[0],
        },
        "required": ["tool", "arguments"],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
    strict = all(function.get("strict") for function in functions)
    schema = {"name": "tool_call", "strict": strict, "schema": answer}
    return json.dumps({"type": "json_schema", "json_schema": schema}, separators=(",", ":"))


def _with_own_definitions(function: JsonObject) -> JsonObject:
    """The function, with the tool's name before those of its definitions: two tools may call theirs alike."""
    parameters = function["parameters"]
    if "$defs" not in parameters:
        return function
    mark, own = '"#/$defs/', f'"#/$defs/{function["name"]}.'
    moved = json.loads(json.dumps(parameters).replace(mark, own))
    moved["$defs"] = {f"{function['name']}.{name}": value for name, value in moved["$defs"].items()}
    return {**function, "parameters": moved}
