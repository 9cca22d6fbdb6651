"""All tools there are: the server's and the tenants'; which of them an agent has, and by which rules."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from memserver.errors import InvalidInput, ToolError
from memserver.messages import ToolSpec
from memserver.storage.tools import Definition, Grant
from memserver.tools.mcp_tools import McpConnections
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.outbound.webhooks import Delivery, WebhookSender
from memserver.tools.tool import RunnableTool, SpecStyle, ToolContext, call_schema, describe

MOST_DESCRIBED = 100
"""Working contexts whose description of the default tools is remembered: the same value serves caches by identity."""


class ToolRegistry:
    """All tools there are, by name, in the order in which the model sees them, and each agent's choice of them."""

    def __init__(
        self,
        tools: Iterable[RunnableTool],
        style: SpecStyle,
        webhooks: WebhookSender,
        mcp: McpConnections,
    ) -> None:
        self.style = style
        self._tools = {tool.spec.name: style.apply(tool) for tool in tools}
        self._default = {name: tool for name, tool in self._tools.items() if tool.attached}
        self.webhooks = webhooks
        self._mcp = mcp
        self.describe_default = lru_cache(MOST_DESCRIBED)(
            partial(describe, tuple(self._default.values()))
        )

    async def wait(self, grants: Sequence[Grant]) -> None:
        """Wait, not long, for what an agent has of tools that are listed only after the start."""
        names = [
            grant.name
            for grant in grants
            if grant.attached and grant.definition is None and self.server_tool(grant.name) is None
        ]
        if names:
            await self._mcp.wait_until_listed(names)

    def tools_of(self, grants: Sequence[Grant]) -> Mapping[str, RunnableTool]:
        """The tools of an agent. One that isn't there now, as its MCP server is away, is left out."""
        if not grants:
            return self._default
        given = {grant.name: grant for grant in grants}
        found = {}
        for name, tool in self._tools.items():
            grant = given.get(name)
            wanted = grant.attached and grant.definition is None if grant else tool.attached
            if wanted or name == SEND_MESSAGE:
                found[name] = tool
        for grant in grants:
            other = self._other(grant) if grant.attached else None
            if other is not None:
                found[grant.name] = other
        return found

    def server_tool(self, name: str) -> RunnableTool | None:
        """One of the server's own tools, whose tenants need not register it."""
        return self._tools.get(name) or self._mcp.configured.get(name)

    def server_tools(self) -> list[RunnableTool]:
        """The server's own tools: memory, Python, and those of the MCP servers of its settings."""
        return [*self._tools.values(), *self._mcp.configured.values()]

    def tool_of(self, definition: Definition) -> RunnableTool:
        return self.style.apply(_remote_tool(definition, self.webhooks, self._mcp))

    def _other(self, grant: Grant) -> RunnableTool | None:
        if grant.definition is not None:
            return self.tool_of(grant.definition)
        configured = None if grant.name in self._tools else self._mcp.configured.get(grant.name)
        return None if configured is None else self.style.apply(configured)


def check_rules(grants: Sequence[Grant], tool: RunnableTool, max_steps: int) -> None:
    """Check an agent's rules together, after that of a tool was changed. Raises InvalidInput: no turn could keep them."""
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


def _check_rule(grant: Grant, tool: RunnableTool) -> None:
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


def _remote_tool(
    definition: Definition, webhooks: WebhookSender, mcp: McpConnections
) -> RunnableTool:
    async def run(context: ToolContext, /, **arguments: Any) -> object:  # noqa: ANN401 - JSON
        if definition.kind == "webhook":
            return await webhooks.deliver(_delivery(definition, context, arguments))
        if definition.kind == "mcp":
            assert definition.server_id is not None
            assert definition.remote_name is not None
            return await mcp.call(
                context.tenant, definition.server_id, definition.remote_name, arguments
            )
        raise ToolError("This tool is run by the caller.")

    spec = ToolSpec(definition.name, definition.description, call_schema(definition.parameters))
    return RunnableTool(spec, run, kind=definition.kind, attached=False, timeout=definition.timeout)


def _delivery(
    definition: Definition, context: ToolContext, arguments: Mapping[str, Any]
) -> Delivery:
    assert definition.url is not None
    assert definition.secret is not None
    body = {
        "tool": definition.name,
        "arguments": arguments,
        "agent_id": str(context.agent_id),
        "turn": context.turn,
        "call_id": context.call_id,
    }
    return Delivery(
        id=f"{context.agent_id}:{context.call_id}",
        url=definition.url,
        secret=definition.secret,
        body=json.dumps(body, ensure_ascii=False).encode(errors="replace"),
        retries=definition.retries,
    )
