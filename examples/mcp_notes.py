"""An MCP server on stdio, for MEMSERVER_MCP_SERVERS='{"notes": {"command": "python", "args": ["mcp_notes.py"]}}'."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes", log_level="WARNING")
NOTES = {"ferns": "Ferns want shade and a wet soil."}


@server.tool()
def read_note(title: str) -> str:
    """Read a note by its title."""
    return NOTES.get(title, f"There is no note {title!r}; there are: {', '.join(NOTES)}.")


if __name__ == "__main__":
    server.run("stdio")
