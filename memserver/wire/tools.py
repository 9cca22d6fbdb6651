"""Tools, which of them agents have, and MCP servers."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from memserver.wire.base import Record

ToolKind = Literal["memory", "python", "webhook", "mcp", "client"]
"""Who runs it: memserver, a Python function, a webhook, an MCP server, or the caller."""


class Tool(Record):
    """A tool. Of a webhook the secret is shown once, in the answer to its creation."""

    name: str = Field(examples=["weather"])
    kind: ToolKind = Field(examples=["webhook"])
    description: str = Field(examples=["The weather of a city, today."])
    parameters: dict[str, Any] = Field(
        description="JSON schema of its arguments.",
        examples=[
            {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        ],
    )
    url: str | None = Field(default=None, examples=["https://example.org/weather"])
    timeout: float | None = Field(
        default=None, description="Seconds of a call; null: the server's.", examples=[30.0]
    )
    retries: int | None = Field(default=None, examples=[2])
    secret: str | None = Field(default=None, repr=False)
    mcp_server_id: UUID | None = None
    created_at: datetime | None = Field(default=None, description="Null: it is the server's own.")
    updated_at: datetime | None = None


class ToolTrial(Record):
    """What came of calling a tool once, to try it."""

    state: Literal["done", "failed", "refused"] = Field(
        description="refused: the arguments don't fit, and nothing was called; `result` is what a model would read.",
        examples=["done"],
    )
    result: str = Field(
        description="What the model reads: the result, or why there is none.",
        examples=["It is sunny."],
    )
    pictures: int = Field(default=0, description="How many pictures the model would see.")
    arguments: dict[str, Any] = Field(
        description="As the tool got them.", examples=[{"city": "Oslo"}]
    )
    seconds: float = Field(default=0.0, description="That it took.", examples=[0.42])


class ToolRules(Record):
    """By which rules an agent calls a tool; each counts in every turn by itself."""

    approval: bool = Field(
        default=False, description="A person has to approve each call before it runs."
    )
    first: bool = Field(
        default=False, description="The turn's first call is this one, or another with this rule."
    )
    terminal: bool = Field(default=False, description="The turn ends when it has succeeded.")
    required: bool = Field(
        default=False, description="The turn doesn't end before it has succeeded."
    )
    max_calls: int | None = Field(
        default=None, description="Calls in one turn, at most.", examples=[3]
    )


class AgentTool(ToolRules):
    """A tool that an agent has, with its rules."""

    name: str = Field(examples=["weather"])
    kind: ToolKind | None
    description: str = Field(examples=["The weather of a city, today."])
    available: bool = Field(
        description="False: it can't be called now, since its MCP server is away."
    )


class McpServer(Record):
    """An MCP server, with the tools that it listed last."""

    id: UUID
    name: str = Field(examples=["files"])
    url: str = Field(examples=["https://example.org/mcp"])
    timeout: float | None = Field(
        description="Seconds of a call; null: the server's.", examples=[30.0]
    )
    tools: list[str] = Field(examples=[["files__read"]])
    refused: dict[str, str] = Field(
        description="Tools that it lists now and that can't be used, with the reason.",
        examples=[{}],
    )
    listed_at: datetime | None
    created_at: datetime
