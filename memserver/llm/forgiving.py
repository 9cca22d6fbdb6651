"""What of a call's arguments never costs the call, though it doesn't fit the schema.

What no person and no tool reads: a thought that is too long is cut, and one of no use is left out, as is any
argument that a forgiving tool doesn't have. Another tool's unknown arguments are refused unless its schema says
something about them: without a dry_run that the model relies on, another thing would be done than it means. A
message is read by a person while it is written, so it counts beyond its limit.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from jsonschema.exceptions import ValidationError

from memserver.llm.tool_names import SPOKEN
from memserver.messages import RESERVED, JsonObject, ToolSpec

LONGEST_MESSAGE = 20_000
"""Characters of a message that is taken, whatever its schema says."""
_LOOKED_AT = 100
"""Errors of one call; a list of ten thousand wrong members has as many."""


def forgiven(
    spec: ToolSpec,
    arguments: JsonObject,
    validator: Any,  # noqa: ANN401 - a class that is made
) -> Iterator[tuple[str, Any]]:
    properties = spec.parameters.get("properties", {})
    forgiving = spec.forgiving or spec.name == SPOKEN
    for name, value in arguments.items():
        known = properties.get(name)
        if name in RESERVED:
            longest = known.get("maxLength") if isinstance(known, dict) else None
            kept = value[:longest] if isinstance(value, str) else value
            if known is not None and validator.evolve(schema=known).is_valid(kept):
                yield name, kept
        elif known is not None or not forgiving:
            yield name, value


def misfits(
    spec: ToolSpec,
    arguments: JsonObject,
    validator: Any,  # noqa: ANN401 - a class that is made
) -> list[ValidationError]:
    """What doesn't fit, but for the length of a message that was read already."""
    message = arguments.get("message")
    taken = spec.name == SPOKEN and isinstance(message, str) and len(message) <= LONGEST_MESSAGE
    found = islice(validator.iter_errors(arguments), _LOOKED_AT)
    counting = [
        error
        for error in found
        if not (taken and error.validator == "maxLength" and list(error.path) == ["message"])
    ]
    return sorted(counting, key=lambda error: list(map(str, error.path)))
