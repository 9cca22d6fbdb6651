"""An MCP server with a few tools, by the official SDK: as a process on stdio, or as an app."""

import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import ImageContent
from starlette.types import ASGIApp, Receive, Scope, Send

HERE = "127.0.0.1/32"
"""The network to reach it in."""

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
"""A PNG of one pixel."""

demo = MCPServer("demo", log_level="CRITICAL")


@demo.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@demo.tool(structured_output=False)
def die() -> str:
    """End the server, if that is a process of its own."""
    if __name__ == "__main__":
        os._exit(3)
    raise ValueError("The tests run in this process.")


@demo.tool()
def break_down() -> str:
    """Raise."""
    raise ValueError("nope")


@demo.tool()
def look() -> ImageContent:
    """Give a picture."""
    return ImageContent(type="image", data=DOT, mime_type="image/png")


@demo.tool(name="odd.name/with spaces")
def odd() -> str:
    """Has an odd name."""
    return "odd"


@demo.tool()
def ours(inner_thought: str) -> dict[str, Any]:
    """Takes an argument that is ours."""
    return {"thought": inner_thought}


if __name__ != "__main__":
    # The server has set the level of all logs, and no other test would hear any.
    logging.getLogger().setLevel(logging.WARNING)


@contextlib.contextmanager
def over_http(
    port: int = 0, *, headers: list[dict[str, str]] | None = None, served: MCPServer[Any] = demo
) -> Iterator[int]:
    """The demo over streamable HTTP; gives its port."""
    app = served.streamable_http_app(host="127.0.0.1")

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        if headers is not None and scope["type"] == "http":
            headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
        await app(scope, receive, send)

    server = uvicorn.Server(_config(noted))
    listener = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0)


if __name__ == "__main__":
    demo.run("stdio")
    sys.exit(0)
