"""What a tool is, which of them an agent has, and by which rules. Knows no particular tool."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from uuid import UUID

from memserver.memory.archival import ArchivalStorage
from memserver.memory.recall import RecallStorage
from memserver.memory.results import Reader
from memserver.messages import JsonObject, ToolSpec
from memserver.storage.database import Database, LazyTransaction
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
        agent_id: whose tool runs.
        tenant: to whom the agent belongs.
        turn: in which it is called.
        call_id: identifies the call; the same if it is tried again.
        transaction: opens on first use, and commits together with the call's result.
        database: for a tool that is not transactional, whose work is its own.
        archival: archival storage with its embedder.
        recall: recall storage.
        before: position of the turn's first message; a search of the past looks before it.
        position: of the call itself.
        now: the time of the call.
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
    reader: Reader
    alone: bool = False


ToolFunction = Callable[..., Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that an agent can call.

    Attributes:
        spec: what the model is shown.
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


@dataclass(frozen=True, slots=True)
class Rule:
    """By which rules an agent calls a tool; all of them count in each turn again.

    Attributes:
        approval: a person has to approve each call before it runs.
        first: the turn's first call is of this tool, or of another one that has this rule.
        terminal: the turn ends when it has succeeded.
        required: the turn doesn't end before it has succeeded.
        max_calls: it is offered no more when it was called so often.
    """

    approval: bool = False
    first: bool = False
    terminal: bool = False
    required: bool = False
    max_calls: int | None = None


@dataclass(slots=True)
class Calls:
    """What a turn has called so far: how often each tool, and which of them have succeeded."""

    made: Counter[str] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)

    def add(self, name: str, *, done: bool) -> None:
        self.made[name] += 1
        if done:
            self.done.add(name)


FREE = Rule()
MOST_NARROWED = 100
"""Ways in which the specs of a toolset are narrowed that it remembers."""


class Toolset:
    """The tools of one agent, in the order in which the model sees them, and their rules."""

    def __init__(self, tools: Iterable[Tool], rules: Mapping[str, Rule] | None = None) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._rules = {name: rule for name, rule in (rules or {}).items() if name in self._tools}
        self._specs: dict[tuple[tuple[str, tuple[str, ...]], ...], tuple[ToolSpec, ...]] = {}

    def get(self, name: str) -> Tool | None:
        """A tool by its name; None if the agent doesn't have it now."""
        return self._tools.get(name)

    def extended(self, more: Mapping[str, Tool]) -> "Toolset":
        """With further tools, and others instead of those of the same names; no rules hold for a client's."""
        clients = {name for name, tool in more.items() if tool.kind == "client"}
        rules = {name: rule for name, rule in self._rules.items() if name not in clients}
        return Toolset({**self._tools, **more}.values(), rules)

    def rule(self, name: str) -> Rule:
        return self._rules.get(name, FREE)

    @property
    def ruled(self) -> bool:
        """Whether what was called matters for what may be called."""
        return bool(self._rules)

    def missing(self, calls: Calls) -> list[str]:
        """Tools that have to succeed before the turn ends, and still can."""
        return [
            name
            for name, rule in self._rules.items()
            if rule.required and name not in calls.done and not _spent(rule, calls.made[name])
        ]

    def offered(self, calls: Calls, ending: str) -> frozenset[str]:
        """The names that may be called now; `ending` is the tool that ends a turn by itself."""
        names = set(self._tools)
        if not self._rules:
            return frozenset(names)
        names -= {name for name, rule in self._rules.items() if _spent(rule, calls.made[name])}
        first = {name for name, rule in self._rules.items() if rule.first}
        if first and not calls.made:
            return frozenset(first & names or names)
        missing = self.missing(calls)
        if missing:
            ends = {ending, *(name for name, rule in self._rules.items() if rule.terminal)}
            names -= ends - set(missing) if len(missing) == 1 else ends
        return frozenset(names)

    def specs(self, enums: Mapping[str, Sequence[str]] | None = None) -> tuple[ToolSpec, ...]:
        """What the model is shown, where an agent narrows the values of memory tools' parameters: by parameter name."""
        key = tuple((name, tuple(values)) for name, values in (enums or {}).items())
        if key not in self._specs:
            if len(self._specs) >= MOST_NARROWED:
                self._specs.clear()
            self._specs[key] = tuple(
                _narrowed(tool.spec, enums) if enums and tool.kind == "memory" else tool.spec
                for tool in self._tools.values()
            )
        return self._specs[key]


def make_tool(
    function: ToolFunction,
    *,
    heartbeat: bool = True,
    transactional: bool = False,
    kind: ToolKind = "python",
) -> Tool:
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
    return Tool(spec, function, transactional, kind)


def idle_tool(name: str, description: str) -> Tool:

    async def nothing(context: ToolContext) -> str:  # noqa: ARG001 - every tool takes it
        return ""

    thought = {**THOUGHT, "maxLength": IDLE_THOUGHT}
    schema = {"type": "object", "properties": {"inner_thought": thought}}
    spec = ToolSpec(name, description, {**schema, "additionalProperties": False}, forgiving=True)
    return Tool(spec, nothing, transactional=True, kind="memory")


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

    def of(self, tool: Tool) -> Tool:
        return replace(tool, spec=_styled(tool.spec, self))


class ToolRegistry:
    """The tools that a server has for all tenants, by name, in the order in which the model sees them."""

    def __init__(self, tools: Iterable[Tool], style: SpecStyle | None = None) -> None:
        self.style = style or SpecStyle()
        self.tools = {tool.spec.name: self.style.of(tool) for tool in tools}
        self.default = Toolset(tool for tool in self.tools.values() if tool.attached)

    def specs(self, enums: Mapping[str, Sequence[str]] | None = None) -> tuple[ToolSpec, ...]:
        return self.default.specs(enums)


def _spent(rule: Rule, made: int) -> bool:
    return rule.max_calls is not None and made >= rule.max_calls


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


def _narrowed(spec: ToolSpec, enums: Mapping[str, Sequence[str]]) -> ToolSpec:
    properties = dict(spec.parameters["properties"])
    changed = [name for name in properties if enums.get(name)]
    if not changed:
        return spec
    for name in changed:
        properties[name] = {**properties[name], "enum": list(enums[name])}
    return replace(spec, parameters={**spec.parameters, "properties": properties})
