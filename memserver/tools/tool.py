"""What a tool is, and how it is described to a model. Knows no particular tool."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from uuid import UUID

from memserver.memory.archival import ArchivalStorage
from memserver.memory.recall import RecallStorage
from memserver.memory.results import ResultReader
from memserver.messages import JsonObject, ToolSpec
from memserver.storage.database import Database, LazyTransaction, TenantScope
from memserver.tools.signature import read_signature
from memserver.wire.tools import ToolKind

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
IDLE_THOUGHT = 200
"""Characters of a thought that is all that a call says, of a small model's too."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool can reach while it runs.

    Attributes:
        call_id: identifies the call; the same if it is tried again.
        transaction: opens on first use, and commits together with the call's result.
        database: for a tool that is not transactional, whose work is its own.
        before: position of the turn's first message; a search of the past looks before it.
        position: of the call itself, as `now` is its time.
        zone: of dates that name none.
        reader: the model that reads the result.
        alone: the turn's process died before, so a Python function gets a process of its own.
    """

    agent_id: UUID
    tenant: str
    turn: int
    call_id: str
    transaction: LazyTransaction
    database: Database
    archival: ArchivalStorage
    recall: RecallStorage
    before: int
    position: int
    now: datetime
    zone: tzinfo
    reader: ResultReader
    alone: bool = False

    @property
    def scope(self) -> TenantScope:
        """For a search, which is no part of `transaction`."""
        return TenantScope(self.database, self.tenant)


ToolFunction = Callable[..., Awaitable[object]]


@dataclass(frozen=True, slots=True)
class RunnableTool:
    """A tool that an agent can call.

    Attributes:
        run: takes the context, then the arguments by name (without inner_thought and
            request_heartbeat); returns the result, raises ToolError to refuse.
        transactional: its effect is in our own database only, so that call, effect and result are
            one transaction; else the call is stored as running before it starts.
        kind: who runs it. One of kind "client" is never run here: its call waits for the caller.
        attached: every agent has it that doesn't detach it; else those that attach it.
        timeout: seconds; None: the server's.
    """

    spec: ToolSpec
    run: ToolFunction
    transactional: bool = False
    kind: ToolKind = "python"
    attached: bool = True
    timeout: float | None = None


def make_tool(
    function: ToolFunction,
    *,
    heartbeat: bool = True,
    transactional: bool = False,
    kind: ToolKind = "python",
) -> RunnableTool:
    """Make a tool of one of our own functions: name, docstring and typed parameters become its spec.

    The parameter of type ToolContext, the first one, takes the context. A default makes a parameter
    optional. Every tool gets inner_thought first, and request_heartbeat last unless `heartbeat` is false.

    Raises:
        SetupError: no docstring, an untyped parameter, or a reserved name.
    """
    signature = read_signature(function, context=ToolContext)
    spec = ToolSpec(
        signature.name,
        signature.description,
        call_schema(signature.schema, heartbeat=heartbeat),
        forgiving=kind == "memory",
    )
    return RunnableTool(spec, function, transactional, kind)


def idle_tool(name: str, description: str) -> RunnableTool:

    async def nothing(context: ToolContext) -> str:  # noqa: ARG001 - every tool takes it
        return ""

    thought = {**THOUGHT, "maxLength": IDLE_THOUGHT}
    schema = {"type": "object", "properties": {"inner_thought": thought}}
    spec = ToolSpec(name, description, {**schema, "additionalProperties": False}, forgiving=True)
    return RunnableTool(spec, nothing, transactional=True, kind="memory")


def call_schema(arguments: JsonObject, *, heartbeat: bool = True) -> JsonObject:
    """The schema of a call: a tool's own arguments, with the thought before and the heartbeat after."""
    properties = {"inner_thought": THOUGHT, **arguments.get("properties", {})}
    if heartbeat:
        properties["request_heartbeat"] = HEARTBEAT
    open_to_more = arguments.get("additionalProperties", False)
    return {
        **arguments,
        "type": "object",
        "properties": properties,
        "additionalProperties": open_to_more,
    }


@dataclass(frozen=True, slots=True)
class SpecStyle:
    """How calls are laid out: whether the thought comes last, and short; how many characters a text may have."""

    thought_last: bool = False
    longest_text: int | None = None

    def apply(self, tool: RunnableTool) -> RunnableTool:
        return replace(tool, spec=_styled(tool.spec, self))


def _styled(spec: ToolSpec, style: SpecStyle) -> ToolSpec:
    properties = dict(spec.parameters["properties"])
    if style.thought_last:
        thought = properties.pop("inner_thought")
        properties["inner_thought"] = {**thought, "maxLength": SHORT_THOUGHT}
    if style.longest_text is not None:
        for name, schema in properties.items():
            if isinstance(schema, dict) and schema.get("type") == "string":
                longest = min(schema.get("maxLength", style.longest_text), style.longest_text)
                properties[name] = {**schema, "maxLength": longest}
    return replace(spec, parameters={**spec.parameters, "properties": properties})


def describe(tools: Iterable[RunnableTool], sections: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    """What the model is shown of tools; memory tools take the names of these sections only."""
    return tuple(
        _narrowed(tool.spec, sections) if sections and tool.kind == "memory" else tool.spec
        for tool in tools
    )


def _narrowed(spec: ToolSpec, sections: tuple[str, ...]) -> ToolSpec:
    properties = spec.parameters["properties"]
    if "section" not in properties:
        return spec
    section = {**properties["section"], "enum": list(sections)}
    return replace(
        spec, parameters={**spec.parameters, "properties": {**properties, "section": section}}
    )
