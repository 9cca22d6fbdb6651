"""What a tool is, and how its schema comes from a function's signature. Knows no particular tool."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from pydantic import ConfigDict, create_model

from memserver.errors import SetupError
from memserver.memory.archival import ArchivalStorage
from memserver.messages import JsonObject, ToolSpec
from memserver.storage.database import LazyTransaction

RESERVED = ("inner_thought", "request_heartbeat")
THOUGHT = {
    "type": "string",
    "maxLength": 300,
    "description": "Private: one short sentence on what you do and why.",
}
SHORT_THOUGHT = 60
"""Characters of a thought that comes last, where it serves no thinking."""
HEARTBEAT = {
    "type": "boolean",
    "description": "true: you get another step after this one, for example to answer.",
}


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool can reach while it runs.

    Attributes:
        agent_id: whose tool runs.
        transaction: opens on first use, and commits together with the call's result.
        archival: archival storage with its embedder.
        before: position of the turn's first message; a search of the past looks before it.
        position: of the call itself.
        now: the time of the call.
        zone: of dates that name none.
    """

    agent_id: UUID
    transaction: LazyTransaction
    archival: ArchivalStorage
    before: int
    position: int
    now: datetime
    zone: tzinfo


ToolFunction = Callable[..., Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that an agent can call.

    Attributes:
        spec: what the model is told.
        run: takes the context, then the arguments by name (without inner_thought and
            request_heartbeat); returns the result's text, raises ToolError to refuse.
        transactional: its effect is in our own database only, so that call, effect and result are
            one transaction; else the call is stored as running before it starts.
        option: only agents whose option of this name is on have it; None: all have.
    """

    spec: ToolSpec
    run: ToolFunction
    transactional: bool = False
    option: str | None = None


def make_tool(
    function: ToolFunction,
    *,
    heartbeat: bool = True,
    transactional: bool = False,
    option: str | None = None,
) -> Tool:
    """Make a tool of a function: name, docstring and typed parameters become its spec.

    The first parameter takes the ToolContext. A default makes a parameter optional. Every tool gets
    inner_thought first, and request_heartbeat last unless `heartbeat` is false.

    Raises:
        SetupError: no docstring, an untyped parameter, or a reserved name.
    """
    name = function.__name__
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    if not function.__doc__:
        raise SetupError(f"The tool {name} has no docstring to tell the model what it does.")
    for parameter in parameters:
        if parameter.annotation is parameter.empty:
            raise SetupError(f"The tool {name} has no type for its parameter {parameter.name}.")
        if parameter.name in RESERVED:
            raise SetupError(f"The tool {name} can't have a parameter named {parameter.name}.")
    schema = _schema(name, parameters)
    properties = {"inner_thought": THOUGHT, **schema.get("properties", {})}
    if heartbeat:
        properties["request_heartbeat"] = HEARTBEAT
    schema["properties"] = properties
    schema["additionalProperties"] = False
    spec = ToolSpec(name, inspect.cleandoc(function.__doc__), schema)
    return Tool(spec, function, transactional, option)


@dataclass(frozen=True, slots=True)
class SpecStyle:
    """How calls are laid out for a model.

    Attributes:
        thought_last: inner_thought comes behind the other arguments, and is short.
        longest_text: characters that a text argument may have; None leaves it to the tool.
    """

    thought_last: bool = False
    longest_text: int | None = None


class ToolRegistry:
    """The tools of an agent, by name, in the order in which the model sees them."""

    def __init__(self, tools: Iterable[Tool], style: SpecStyle | None = None) -> None:
        styled = (replace(tool, spec=_styled(tool.spec, style or SpecStyle())) for tool in tools)
        self._tools = {tool.spec.name: tool for tool in styled}

    def get(self, name: str) -> Tool:
        """A tool by its name, which the reply parser has checked."""
        return self._tools[name]

    def specs(
        self,
        enums: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[ToolSpec, ...]:
        """What the model is told.

        Args:
            enums: allowed values by parameter name, where an agent narrows them.
            options: the agent's, of which some bring a tool.
        """
        on = {name for name, value in (options or {}).items() if value is True}
        had = (tool for tool in self._tools.values() if tool.option is None or tool.option in on)
        return tuple(_narrowed(tool.spec, enums or {}) for tool in had)


def _schema(name: str, parameters: Sequence[inspect.Parameter]) -> JsonObject:
    fields: dict[str, Any] = {
        parameter.name: (
            parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in parameters
    }
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    schema: JsonObject = _without_titles(model.model_json_schema())
    return schema


def _without_titles(schema: Any) -> Any:  # noqa: ANN401 - a JSON schema is any JSON
    if isinstance(schema, dict):
        return {
            key: _without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    return schema


def _styled(spec: ToolSpec, style: SpecStyle) -> ToolSpec:
    properties = dict(spec.parameters["properties"])
    if style.thought_last:
        thought = properties.pop("inner_thought")
        properties["inner_thought"] = {**thought, "maxLength": SHORT_THOUGHT}
    if style.longest_text is not None:
        for name, schema in properties.items():
            if schema.get("type") == "string":
                longest = min(schema.get("maxLength", style.longest_text), style.longest_text)
                properties[name] = {**schema, "maxLength": longest}
    return ToolSpec(spec.name, spec.description, {**spec.parameters, "properties": properties})


def _narrowed(spec: ToolSpec, enums: Mapping[str, Sequence[str]]) -> ToolSpec:
    properties = dict(spec.parameters["properties"])
    changed = [name for name in properties if enums.get(name)]
    if not changed:
        return spec
    for name in changed:
        properties[name] = {**properties[name], "enum": list(enums[name])}
    return ToolSpec(spec.name, spec.description, {**spec.parameters, "properties": properties})
