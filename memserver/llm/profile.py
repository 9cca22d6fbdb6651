"""How one model at one endpoint is spoken to: the one place that knows how OpenAI-compatible endpoints differ.

A profile is found by asking, changed by what refusals say, and overridable by the setting
MEMSERVER_LLM_PROFILE. Nothing else in memserver depends on which provider answers.
"""

from dataclasses import dataclass
from typing import Literal

ToolCallMode = Literal["tools", "json_schema", "text"]
"""Native tool calling; an answer held to a JSON schema; or nothing but what the system message says."""
ToolChoice = Literal["named", "required", "auto", "unset"]
"""The strictest form of `tool_choice` that the endpoint takes: the function as an object, or a word."""
OutputLimit = Literal["max_tokens", "max_completion_tokens", "unset"]
"""The parameter that limits an answer's tokens."""
Roles = Literal["any", "alternating"]
"""alternating: user and assistant take turns, the user begins and ends, and no user message follows a tool's
result, as the chat templates of Mistral and Gemma demand."""
SystemRole = Literal["system", "user"]
"""user: the system message stands at the head of the first user message."""
ReturnedFields = Literal["sent", "left_out"]
"""Whether fields that the model's messages came with (reasoning_content, thought_signature, …) go back to it."""


@dataclass(frozen=True, slots=True)
class EndpointProfile:
    """What an endpoint takes; the defaults are vLLM's."""

    mode: ToolCallMode = "tools"
    tool_choice: ToolChoice = "named"
    parallel_tool_calls: bool = True
    """Whether the field `parallel_tool_calls: false` is taken."""
    output_limit: OutputLimit = "max_tokens"
    reasoning_effort: str | None = None
    """Sent as it is; some models take tools with the effort "none" only."""
    stream_options: bool = True
    """Whether `stream_options: {include_usage: true}` is taken."""
    roles: Roles = "any"
    system_role: SystemRole = "system"
    returned_fields: ReturnedFields = "sent"
