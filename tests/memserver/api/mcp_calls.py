"""A call of a tool, by an MCP client."""

from typing import Any

from mcp import Client


async def call_tool(client: Client, name: str, **arguments: Any) -> tuple[bool, str]:
    """Whether the call failed, and its text."""
    result = await client.call_tool(name, arguments)
    texts = [block.text for block in result.content if block.type == "text"]
    text = "\n".join(texts).removeprefix(f"Error executing tool {name}: ")
    return bool(result.is_error), text
