"""How a step is asked for in each protocol: by a call of a tool, or by plain text that is the message.

Whatever the protocol, a step is one call: plain text is a call of send_message. So all that follows, from
recall storage to streams, is the same. How the history looks is in `entries`.
"""

from collections.abc import Sequence

from memserver.agent.options import AgentProtocol
from memserver.errors import ProtocolViolation
from memserver.llm.base import ChatModel, Reply, TextSink
from memserver.llm.call_ids import new_call_id
from memserver.messages import PromptMessage, Section, ToolCall, ToolSpec
from memserver.prompts import Prompts
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.registry import Toolset


async def ask_for_step(
    model: ChatModel,
    protocol: AgentProtocol,
    asked: tuple[Sequence[PromptMessage], Sequence[ToolSpec]],
    *,
    max_tokens: int,
    on_text: TextSink | None = None,
) -> Reply:
    """The model's next step, from a prompt and the tools of which one may be called. Raises a ModelError."""
    prompt, tools = asked
    if protocol == "tools":
        return await model.call_tool(prompt, tools, max_tokens=max_tokens, on_text=on_text)
    written = await model.write(prompt, max_tokens=max_tokens, on_text=on_text)
    call = ToolCall(new_call_id(), SEND_MESSAGE, {"message": written.text})
    return Reply(call, written.usage)


def tool_specs(
    toolset: Toolset, sections: Sequence[Section], protocol: AgentProtocol
) -> tuple[ToolSpec, ...]:
    """The tools that the model is told of.

    Args:
        toolset: what the agent has.
        sections: of its working context, which memory tools name.
        protocol: in plain chat there are none.
    """
    if protocol == "chat":
        return ()
    return toolset.specs({"section": [section.name for section in sections]})


def prompt_file(name: str, protocol: AgentProtocol) -> str:
    """Where a text for the model lies in the prompts' folder: plain chat has its own."""
    return name if protocol == "tools" else f"{protocol}/{name}"


def said(reply: Reply) -> str:
    """What a step says to the person; empty for any other call."""
    message: object = reply.call.arguments.get("message")
    return message if reply.call.name == SEND_MESSAGE and isinstance(message, str) else ""


MOST_SHOWN = 200
"""Characters of a reply that an error quotes."""


def gave_up(error: ProtocolViolation, replies: int) -> ProtocolViolation:
    """What the caller is told when the model has given too many such replies; they know no tools."""
    raw = " ".join(error.raw.split())
    shown = f"{raw[:MOST_SHOWN]}…" if len(raw) > MOST_SHOWN else raw
    return ProtocolViolation(
        f"The model doesn't follow the protocol: {replies} of its replies were no valid tool call. "
        f"The last one: {shown or '(nothing)'}",
        raw=error.raw,
        hint="The agent stays usable, and its history says what was wrong. `memserver doctor` tries the "
        "model; MEMSERVER_LLM_MODE (tools, json_schema or text) says how it is asked, or take another model.",
    )


def complaint(prompts: Prompts, error: ProtocolViolation, protocol: AgentProtocol) -> str:
    """What the model is told after a reply that was none."""
    return prompts.render(prompt_file("invalid_reply.md", protocol), reason=error.message)
