"""The API's resources around tools: what a tenant registers, what an agent has, calls that wait."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from memserver.api.schemas.agents import Request
from memserver.messages import RESERVED, WaitsFor
from memserver.storage.calls import WaitingCall
from memserver.storage.tools import Definition, Grant, McpServer
from memserver.text import is_within
from memserver.tools.mcp_tools import MCP_SERVER_NAME
from memserver.tools.registry import Tool, ToolKind
from memserver.tools.signature import TOOL_NAME

ToolName = Annotated[str, StringConstraints(pattern=rf"^{TOOL_NAME.pattern}$")]
Description = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]", max_length=2000)]
Secret = Annotated[str, StringConstraints(min_length=16, max_length=200)]
Timeout = Annotated[float, Field(gt=0, le=600)]


class _NewTool(Request):
    name: ToolName = Field(description="By which the model calls it.", examples=["weather"])
    description: Description = Field(
        description="What the model is told of it.", examples=["The weather of a city, today."]
    )
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON schema of its arguments, of type object.",
        examples=[
            {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            }
        ],
    )


class WebhookIn(_NewTool):
    """A tool that is called by a signed HTTP POST."""

    kind: Literal["webhook"]
    url: Url = Field(
        description="Where calls are posted.", examples=["https://example.org/weather"]
    )
    secret: Secret | None = Field(
        default=None, repr=False, description="Signs each call; made up when left out."
    )
    timeout: Timeout = Field(default=30, description="Seconds of a call, retries included.")
    retries: int = Field(
        default=2, ge=0, le=10, description="After no connection, a 5xx, 408 or 429."
    )


class ClientToolIn(_NewTool):
    """A tool that the caller runs: the turn waits until its result is given."""

    kind: Literal["client"]


class ToolPatch(Request):
    """A change of a tool; what is left out stays."""

    description: Description | None = Field(
        default=None, examples=["The weather of a town, today."]
    )
    parameters: dict[str, Any] | None = None
    url: Url | None = None
    secret: Secret | None = Field(default=None, repr=False)
    timeout: Timeout | None = None
    retries: int | None = Field(default=None, ge=0, le=10)


class ToolOut(BaseModel):
    """A tool. Of a webhook the secret is shown once, in the answer to its creation."""

    name: str = Field(examples=["weather"])
    kind: ToolKind = Field(examples=["webhook"])
    description: str = Field(examples=["The weather of a city, today."])
    parameters: dict[str, Any] = Field(
        examples=[
            {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        ]
    )
    url: str | None = Field(default=None, examples=["https://example.org/weather"])
    timeout: float | None = Field(default=None, examples=[30.0])
    retries: int | None = Field(default=None, examples=[2])
    secret: str | None = Field(default=None, repr=False)
    mcp_server_id: UUID | None = None
    created_at: datetime | None = Field(default=None, description="Null: it is the server's own.")
    updated_at: datetime | None = None

    @classmethod
    def read(cls, definition: Definition, *, secret: str | None = None) -> Self:
        """From a tenant's tool."""
        return cls(
            name=definition.name,
            kind=definition.kind,
            description=definition.description,
            parameters=definition.parameters,
            url=definition.url,
            timeout=definition.timeout,
            retries=definition.retries if definition.kind == "webhook" else None,
            secret=secret,
            mcp_server_id=definition.server_id,
            created_at=definition.created_at,
            updated_at=definition.updated_at,
        )

    @classmethod
    def of_server(cls, tool: Tool) -> Self:
        """From one of the server's own."""
        return cls(
            name=tool.spec.name,
            kind=tool.kind,
            description=tool.spec.description,
            parameters=_own(tool.spec.parameters),
            timeout=tool.timeout,
        )


class ToolPage(BaseModel):
    """A page of tools; `next` is the cursor of the following page, or null."""

    items: list[ToolOut]
    next: str | None = Field(examples=[None])


class ToolRules(Request):
    """By which rules an agent calls a tool; each counts in every turn anew."""

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
        default=None, ge=1, le=100, description="Calls in one turn, at most.", examples=[3]
    )


class AgentToolOut(ToolRules):
    """A tool that an agent has, with its rules."""

    name: str = Field(examples=["weather"])
    kind: ToolKind | None
    description: str = Field(examples=["The weather of a city, today."])
    available: bool = Field(
        description="False: it can't be called now, since its MCP server is away."
    )

    @classmethod
    def read(cls, name: str, tool: Tool | None, grant: Grant | None) -> Self:
        """From the tool, if it is there, and what the agent says of it, if anything."""
        rules = {field: getattr(grant, field) for field in ToolRules.model_fields} if grant else {}
        return cls(
            name=name,
            kind=tool.kind if tool else None,
            description=tool.spec.description if tool else "",
            available=tool is not None,
            **rules,
        )


class AgentToolPage(BaseModel):
    """A page of an agent's tools; `next` is the cursor of the following page, or null."""

    items: list[AgentToolOut]
    next: str | None = Field(examples=[None])


HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,100}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{0,4000}$")]


class McpServerIn(Request):
    """An MCP server over streamable HTTP."""

    name: Annotated[str, StringConstraints(pattern=MCP_SERVER_NAME)] = Field(
        description="Its tools are named NAME__TOOL.", examples=["files"]
    )
    url: Url = Field(examples=["https://example.org/mcp"])
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict,
        max_length=20,
        repr=False,
        description="Sent with every request, such as Authorization; never shown again.",
    )
    timeout: Timeout | None = Field(
        default=None, description="Seconds of a call; left out: the server's."
    )


class McpServerOut(BaseModel):
    """An MCP server, with the tools that it listed last."""

    id: UUID
    name: str = Field(examples=["files"])
    url: str = Field(examples=["https://example.org/mcp"])
    timeout: float | None = Field(examples=[30.0])
    tools: list[str] = Field(examples=[["files__read"]])
    refused: dict[str, str] = Field(
        description="Tools that it lists now and that can't be used, with the reason.",
        examples=[{}],
    )
    listed_at: datetime | None
    created_at: datetime

    @classmethod
    def read(
        cls, server: McpServer, tools: list[Definition], refused: Mapping[str, str] | None = None
    ) -> Self:
        """From a stored server and its tools."""
        return cls(
            id=server.id,
            name=server.name,
            url=server.url,
            timeout=server.timeout,
            tools=[tool.name for tool in tools],
            refused=dict(refused or {}),
            listed_at=server.listed_at,
            created_at=server.created_at,
        )


class McpServerPage(BaseModel):
    """A page of MCP servers; `next` is the cursor of the following page, or null."""

    items: list[McpServerOut]
    next: UUID | None


class WaitingCallOut(BaseModel):
    """A call that waits for somebody's answer."""

    agent_id: UUID
    turn: int = Field(examples=[4])
    position: int = Field(examples=[4001])
    call_id: str = Field(examples=["k3Xv90TqZ"])
    name: str = Field(examples=["weather"])
    arguments: dict[str, Any] = Field(examples=[{"city": "Graz"}])
    waits_for: WaitsFor
    created_at: datetime
    expires_at: datetime = Field(description="When its turn goes on without an answer.")

    @classmethod
    def read(cls, call: WaitingCall, expires_at: datetime) -> Self:
        """From a stored call."""
        record = call.record
        assert record.waits_for is not None
        return cls(
            agent_id=call.agent_id,
            turn=call.turn,
            position=call.position,
            call_id=record.call.id,
            name=record.call.name,
            arguments=dict(record.call.arguments),
            waits_for=record.waits_for,
            created_at=call.created_at,
            expires_at=expires_at,
        )


class WaitingCallPage(BaseModel):
    """A page of calls that wait; `next` is the cursor of the following page, or null."""

    items: list[WaitingCallOut]
    next: UUID | None


def _small_result(result: Any) -> Any:  # noqa: ANN401 - any JSON
    if not is_within(result, MOST_RESULT):
        raise ValueError(f"it has more than {MOST_RESULT} characters")
    return result


MOST_RESULT = 1_000_000


class ApprovalIn(Request):
    """What a person says to a call that waits for approval."""

    approve: bool = Field(description="True: it runs; false: it doesn't, and the model is told.")
    reason: str = Field(
        default="",
        max_length=2000,
        description="What the model is told why not.",
        examples=["Ask first."],
    )
    stream: bool = Field(default=False, description="Answer as server-sent events.")


class CallResultIn(Request):
    """What came of a call that the caller ran."""

    result: Annotated[Any, AfterValidator(_small_result)] = Field(
        description="Text, or any JSON.", examples=["It is sunny."]
    )
    failed: bool = Field(default=False, description="The call failed; `result` says why.")
    stream: bool = Field(default=False, description="Answer as server-sent events.")

    def text(self) -> str:
        """The result as the model reads it."""
        if self.result is None:
            return ""
        if isinstance(self.result, str):
            return self.result
        return json.dumps(self.result, ensure_ascii=False)


def _own(parameters: dict[str, Any]) -> dict[str, Any]:
    """The schema without what every tool has."""
    properties = {
        name: schema
        for name, schema in parameters.get("properties", {}).items()
        if name not in RESERVED
    }
    return {**parameters, "properties": properties}
