"""Tools that run elsewhere: what is sent to a webhook and to an MCP server, and what comes of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from memserver.errors import ToolError
from memserver.messages import ToolSpec
from memserver.storage.tools import Definition
from memserver.tools.outbound.webhooks import Delivery, WebhookSender
from memserver.tools.registry import Tool, ToolContext, call_schema


class McpTools(Protocol):
    """The MCP servers: those of the settings, and those that tenants have registered."""

    @property
    def configured(self) -> Mapping[str, Tool]:
        """The tools of those of the settings that could be listed until now."""
        ...

    async def listed(self, names: Sequence[str]) -> None:
        """Wait, not long, until the servers that these tools are of have been listed."""
        ...

    async def call(
        self, tenant: str, server_id: UUID, name: str, arguments: Mapping[str, Any]
    ) -> object:
        """Call a tool of a registered server. Raises ToolError."""
        ...


class Remote:
    def __init__(self, webhooks: WebhookSender, mcp: McpTools) -> None:
        self._webhooks = webhooks
        self._mcp = mcp

    @property
    def configured(self) -> Mapping[str, Tool]:
        return self._mcp.configured

    async def listed(self, names: Sequence[str]) -> None:
        """Wait, not long, until the MCP servers that these tools are of have been listed."""
        await self._mcp.listed(names)

    def of(self, definition: Definition) -> Tool:

        async def run(context: ToolContext, /, **arguments: Any) -> object:  # noqa: ANN401 - JSON
            if definition.kind == "webhook":
                return await self._webhooks.deliver(_delivery(definition, context, arguments))
            if definition.kind == "mcp":
                assert definition.server_id is not None
                assert definition.remote_name is not None
                return await self._mcp.call(
                    context.tenant, definition.server_id, definition.remote_name, arguments
                )
            raise ToolError("This tool is run by the caller.")

        spec = ToolSpec(definition.name, definition.description, call_schema(definition.parameters))
        return Tool(spec, run, kind=definition.kind, attached=False, timeout=definition.timeout)


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
