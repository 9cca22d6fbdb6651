"""Tools that run elsewhere: what is sent to a webhook and to an MCP server, and what comes of it."""

import json
from collections.abc import Mapping
from typing import Any

from memserver.errors import ToolError
from memserver.messages import ToolSpec
from memserver.storage.tools import Definition
from memserver.tools.mcp_tools import McpServers
from memserver.tools.outbound.webhooks import Delivery, WebhookSender
from memserver.tools.registry import Tool, ToolContext, call_schema


def remote_tool(definition: Definition, webhooks: WebhookSender, mcp: McpServers) -> Tool:
    """The tool that a tenant has registered."""

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
