"""Tools described in fewer words, for a window that their full description would take too much of.

A chat template shows the model each tool as JSON. That of the tools every agent has takes some 1,900 tokens, of
which the two arguments that stand in nearly each of them, and what is said of arguments, are half.
"""

from collections.abc import Sequence
from dataclasses import replace

from memserver.messages import RESERVED, JsonObject, ToolSpec

_SPARED = frozenset(
    {"recall_memory_search_ignore_case", "recall_memory_search_date", "memory_read"}
)
"""What a search by words and meaning does nearly as well, where there is no room for more."""
_known: dict[int, tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]] = {}
"""By the identity of tools, which stay the same from turn to turn: they, and the shorter ones."""
_MOST_KNOWN = 256


def shorter(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """The same tools in fewer words; of those, without what others can do too; empty where that was done."""
    known = _known.get(id(tools))
    if known is None or known[0] is not tools:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[id(tools)] = (tools, _shorter(tools))
    return known[1]


def _shorter(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    if not is_brief(tools):
        return tuple(map(_brief, tools))
    fewer = tuple(tool for tool in tools if tool.name not in _SPARED)
    return fewer if len(fewer) < len(tools) else ()


def is_brief(tools: Sequence[ToolSpec]) -> bool:
    return bool(tools) and not any(set(RESERVED) & _arguments(tool).keys() for tool in tools)


def _brief(tool: ToolSpec) -> ToolSpec:
    """The tool without what its arguments are for, and without those that every tool has."""
    arguments = {
        name: _without_words(schema)
        for name, schema in _arguments(tool).items()
        if name not in RESERVED
    }
    return replace(tool, parameters={**tool.parameters, "properties": arguments})


def _arguments(tool: ToolSpec) -> JsonObject:
    found: JsonObject = tool.parameters.get("properties", {})
    return found


def _without_words(schema: object) -> object:
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key != "description"}
