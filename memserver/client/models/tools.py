"""Tools, MCP servers, and calls that wait for somebody."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from memserver.client.models.base import Record

ToolKind = Literal["memory", "python", "webhook", "mcp", "client"]
"""Who runs it: memserver, a Python function, a webhook, an MCP server, or the caller."""


class Tool(Record):
    """A tool.

    Attributes:
        parameters: JSON schema of its arguments.
        timeout: seconds of a call.
        secret: of a webhook, in the answer to its creation only.
        created_at: None: it is the server's own.
    """

    name: str
    kind: ToolKind
    description: str
    parameters: dict[str, Any]
    url: str | None = None
    timeout: float | None = None
    retries: int | None = None
    secret: str | None = Field(default=None, repr=False)
    mcp_server_id: UUID | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


class AgentTool(Record):
    """A tool that an agent has, with its rules; each counts in every turn anew.

    Attributes:
        available: False: it can't be called now, since its MCP server is away.
        approval: a person has to approve each call before it runs.
        first: the turn's first call is this one, or another with this rule.
        terminal: the turn ends when it has succeeded.
        required: the turn doesn't end before it has succeeded.
        max_calls: in one turn, at most.
    """

    name: str
    kind: ToolKind | None
    description: str
    available: bool
    approval: bool = False
    first: bool = False
    terminal: bool = False
    required: bool = False
    max_calls: int | None = None


class McpServer(Record):
    """An MCP server, with the tools that it listed last.

    Attributes:
        timeout: seconds of a call; None: the server's.
        refused: tools that it lists now and that can't be used, with the reason.
    """

    id: UUID
    name: str
    url: str
    timeout: float | None
    tools: list[str]
    refused: dict[str, str]
    listed_at: datetime | None
    created_at: datetime
