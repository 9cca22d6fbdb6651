"""Native tools without `strict`, for endpoints that refuse it, or can't render what it makes of a schema.

Strict schemas name every argument as required and let what may be left out be null; here each tool has the schema that it was
given.
"""

import json
from collections.abc import Sequence
from functools import lru_cache

from memserver.llm.control_tokens import escape_control_tokens, escape_schema
from memserver.messages import ToolSpec

_write = json.JSONEncoder(separators=(",", ":")).encode


def plain_tools_json(tools: Sequence[ToolSpec]) -> str:
    """The JSON text of OpenAI's `tools`, each with its own schema."""
    return _written(tuple((spec.name, spec.description, _write(spec.parameters)) for spec in tools))


@lru_cache(maxsize=64)
def _written(tools: tuple[tuple[str, str, str], ...]) -> str:
    functions = [
        {
            "name": name,
            "description": escape_control_tokens(description),
            "parameters": {
                "type": "object",
                "properties": {},
                **escape_schema(json.loads(schema)),
            },
        }
        for name, description, schema in tools
    ]
    return _write([{"type": "function", "function": function} for function in functions])
