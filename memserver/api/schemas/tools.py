"""Bodies of requests for tools, MCP servers and calls that wait."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from memserver.api.schemas.agents import Change, RequestBody
from memserver.text import is_within
from memserver.tools.mcp_tools import MCP_SERVER_NAME
from memserver.tools.signature import TOOL_NAME
from memserver.wire.tools import ToolRules

ToolName = Annotated[str, StringConstraints(pattern=rf"^{TOOL_NAME.pattern}$")]
Description = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]", max_length=2000)]
Secret = Annotated[str, StringConstraints(min_length=16, max_length=200)]
Timeout = Annotated[float, Field(gt=0, le=600)]


class _NewTool(RequestBody):
    name: ToolName = Field(description="By which the model calls it.", examples=["weather"])
    description: Description = Field(
        description="What the model reads of it.", examples=["The weather of a city, today."]
    )
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON schema of its arguments, of type object.",
        examples=[
            {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
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


class ToolPatch(Change):
    """A change of a tool; what is left out stays."""

    description: Description | None = Field(
        default=None, examples=["The weather of a town, today."]
    )
    parameters: dict[str, Any] | None = None
    url: Url | None = None
    secret: Secret | None = Field(default=None, repr=False)
    timeout: Timeout | None = None
    retries: int | None = Field(default=None, ge=0, le=10)


class ToolTrialIn(RequestBody):
    """A call of a tool that is tried."""

    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="As a model would write them.",
        examples=[{"city": "Oslo"}],
    )


class ToolRulesIn(ToolRules):
    """By which rules an agent calls a tool; each counts in every turn by itself."""

    model_config = ConfigDict(extra="forbid")

    max_calls: int | None = Field(
        default=None, ge=1, le=100, description="Calls in one turn, at most.", examples=[3]
    )


HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,100}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{0,4000}$")]


class McpServerIn(RequestBody):
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


def _small_result(result: Any) -> Any:  # noqa: ANN401 - any JSON
    if not is_within(result, MOST_RESULT):
        raise ValueError(f"it has more than {MOST_RESULT} characters")
    return result


MOST_RESULT = 1_000_000


class ApprovalIn(RequestBody):
    """What a person says to a call that waits for approval."""

    approve: bool = Field(description="True: it runs; false: it doesn't, and the model reads why.")
    reason: str = Field(
        default="", max_length=2000, description="Why not, for the model.", examples=["Ask first."]
    )
    stream: bool = Field(default=False, description="Answer as server-sent events.")


class CallResultIn(RequestBody):
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
