"""Connects to MCP servers, and loads the SDK only then.

It takes a second to import: only those who have MCP servers wait for it, in a thread.
"""

import asyncio
from typing import Any

from memserver.tools.outbound.mcp import HttpServer, McpConnection, StdioServer


async def connect(server: StdioServer | HttpServer) -> McpConnection:
    """Connect to a server. Raises ToolError: it can't be reached or speaks no MCP."""
    connection: McpConnection = await (await asyncio.to_thread(_make, server)).open()
    return connection


def _make(server: StdioServer | HttpServer) -> Any:  # noqa: ANN401 - known only when it is imported
    from memserver.tools.outbound.mcp_client import SdkConnection  # noqa: PLC0415 - a second long

    return SdkConnection(server)
