"""An MCP server with a few tools, by the official SDK: as a process on stdio, or as an app."""

import os
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import ImageContent

demo = MCPServer("demo", log_level="CRITICAL")


@demo.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@demo.tool(structured_output=False)
def die() -> str:
    """End the server."""
    os._exit(3)


@demo.tool()
def break_down() -> str:
    """Raise."""
    raise ValueError("nope")


@demo.tool()
def look() -> ImageContent:
    """Give a picture."""
    return ImageContent(type="image", data="AAAA", mime_type="image/png")


@demo.tool(name="odd.name/with spaces")
def odd() -> str:
    """Has an odd name."""
    return "odd"


@demo.tool()
def ours(inner_thought: str) -> dict[str, Any]:
    """Takes an argument that is ours."""
    return {"thought": inner_thought}


if __name__ == "__main__":
    demo.run("stdio")
    sys.exit(0)
