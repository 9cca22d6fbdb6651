"""What MCP servers are to the rest of the code, which knows nothing of the SDK."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memserver.errors import ToolError
from memserver.messages import JsonObject
from memserver.tools.outbound.addresses import Networks

CONNECT_SECONDS = 15.0
LIST_SECONDS = 30.0
MOST_TOOLS = 500
"""Tools that one server may list."""


@dataclass(frozen=True, slots=True)
class StdioServer:
    """An MCP server that is a process of ours; its environment is ours only where that is harmless."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """An MCP server over streamable HTTP, in the public internet or `networks`; None: anywhere, since an operator names it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    networks: Networks | None = ()


@dataclass(frozen=True, slots=True)
class ListedTool:
    name: str
    description: str
    parameters: JsonObject


class NotDelivered(ToolError):
    """The connection was dead already, so that the call may be made again over another one."""

    def __init__(self) -> None:
        super().__init__("The connection to the MCP server is dead.")


class BadAnswer(ToolError):
    """The server answered what can't be used, or nothing in time."""
