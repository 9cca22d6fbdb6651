"""Which tools an agent has, put together from the server's, the tenant's and what the agent says."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from memserver.errors import InvalidInput
from memserver.messages import ToolSpec
from memserver.storage.tools import Definition, Grant
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.registry import Rule, Tool, ToolRegistry, Toolset


class RemoteTools(Protocol):
    """Tools that run elsewhere."""

    def of(self, definition: Definition) -> Tool: ...

    @property
    def configured(self) -> Mapping[str, Tool]:
        """Those of the MCP servers of the settings that could be listed until now."""
        ...

    async def listed(self, names: Sequence[str]) -> None:
        """Wait, not long, until the MCP servers that these tools are of have been listed."""
        ...


class Toolbox:
    def __init__(self, registry: ToolRegistry, remote: RemoteTools) -> None:
        self._registry = registry
        self._remote = remote

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._registry.specs()

    async def ready(self, grants: Sequence[Grant]) -> None:
        """Wait, not long, for what an agent has of tools that are listed only after the start."""
        names = [
            grant.name
            for grant in grants
            if grant.attached and grant.definition is None and self.server_tool(grant.name) is None
        ]
        if names:
            await self._remote.listed(names)

    def toolset(self, grants: Sequence[Grant]) -> Toolset:
        """The tools of an agent. One that isn't there now, as its MCP server is away, is left out."""
        if not grants:
            return self._registry.default
        said = {grant.name: grant for grant in grants}
        tools = self._server_tools(said)
        for grant in grants:
            tool = self._other(grant) if grant.attached else None
            if tool is not None:
                tools.append(tool)
        rules = {grant.name: rule_of(grant) for grant in grants if rule_of(grant) != Rule()}
        return Toolset(tools, rules)

    def server_tool(self, name: str) -> Tool | None:
        """One of the server's own tools, whose tenants need not register it."""
        return self._registry.tools.get(name) or self._remote.configured.get(name)

    def server_tools(self) -> list[Tool]:
        """The server's own tools: memory, Python, and those of the MCP servers of its settings."""
        return [*self._registry.tools.values(), *self._remote.configured.values()]

    def tool_of(self, definition: Definition) -> Tool:
        return self._registry.style.of(self._remote.of(definition))

    def _server_tools(self, said: Mapping[str, Grant]) -> list[Tool]:
        chosen = []
        for name, tool in self._registry.tools.items():
            grant = said.get(name)
            wanted = grant.attached and grant.definition is None if grant else tool.attached
            if wanted or name == SEND_MESSAGE:
                chosen.append(tool)
        return chosen

    def _other(self, grant: Grant) -> Tool | None:
        if grant.definition is not None:
            return self.tool_of(grant.definition)
        if grant.name in self._registry.tools:
            return None
        configured = self._remote.configured.get(grant.name)
        return None if configured is None else self._registry.style.of(configured)


def rule_of(grant: Grant) -> Rule:
    return Rule(grant.approval, grant.first, grant.terminal, grant.required, grant.max_calls)


def check_rules(grants: Sequence[Grant], tool: Tool, max_steps: int) -> None:
    """Check an agent's rules together, after one of them was changed.

    Args:
        grants: all that the agent says.
        tool: the one whose rule is new.
        max_steps: of the agent's turns.

    Raises:
        InvalidInput: no turn could keep them.
    """
    changed = next((grant for grant in grants if grant.name == tool.spec.name), None)
    if changed is not None:
        _check_rule(changed, tool)
    active = [grant for grant in grants if grant.attached]
    required = [grant.name for grant in active if grant.required]
    first = [grant.name for grant in active if grant.first]
    if len(required) >= max_steps:
        raise InvalidInput(
            f"{len(required)} tools are required, but a turn has {max_steps} steps, the answer's among "
            "them.",
            hint="Require fewer, or give the agent more max_steps.",
        )
    if required and first == [SEND_MESSAGE]:
        raise InvalidInput(
            f"{SEND_MESSAGE} ends the turn, so it can't come first where {required[0]} is required."
        )
    endings = [grant.name for grant in active if grant.terminal and grant.required]
    if len(endings) > 1:
        raise InvalidInput(
            f"{endings[0]} and {endings[1]} are both terminal and required: the first of them that "
            "succeeds would end the turn."
        )


def _check_rule(grant: Grant, tool: Tool) -> None:
    name = grant.name
    if name == SEND_MESSAGE:
        if not grant.attached:
            raise InvalidInput(f"{name} can't be detached: the agent could say nothing.")
        for rule in ("approval", "terminal", "required", "max_calls"):
            if getattr(grant, rule):
                raise InvalidInput(
                    f"{rule}: {name} can't have this rule. It ends the turn anyway, and its text "
                    "streams while it is written."
                )
    if grant.approval and tool.kind == "client":
        raise InvalidInput("approval: the caller runs this tool, and can ask for approval itself.")
