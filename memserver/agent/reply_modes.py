"""How a step is asked for in each reply mode: by a call of a tool, or by plain text that is the message.

Whatever the mode, a step is one call: plain text is a call of send_message. So all that follows, from
recall storage to streams, is the same. How the history looks is in `rendering`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from memserver.errors import ProtocolViolation, excerpt
from memserver.llm.base import ChatModel, Reply, TextSink
from memserver.llm.call_ids import new_call_id
from memserver.llm.coercion import read_json
from memserver.llm.tool_arguments import LONGEST_MESSAGE, check_arguments
from memserver.messages import FunctionCall, PromptMessage, ToolSpec
from memserver.prompts import Prompts
from memserver.text import checked_json
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.wire.agents import ReplyMode


async def ask_for_step(
    model: ChatModel,
    mode: ReplyMode,
    request: tuple[Sequence[PromptMessage], Sequence[ToolSpec]],
    *,
    max_tokens: int,
    on_text: TextSink | None = None,
) -> Reply:
    """The model's next step, from a prompt and the tools of which one may be called. Raises a ModelError."""
    prompt, tools = request
    if mode == "tools":
        return await model.call_tool(prompt, tools, max_tokens=max_tokens, on_text=on_text)
    written = await model.write(prompt, max_tokens=max_tokens, on_text=on_text)
    call = FunctionCall(new_call_id(), SEND_MESSAGE, {"message": written.text})
    return Reply(call, written.usage)


def prompt_file(name: str, mode: ReplyMode) -> str:
    """Where a text for the model lies in the prompts' folder: plain chat has its own."""
    return name if mode == "tools" else f"{mode}/{name}"


def said(reply: Reply) -> str:
    """What a step says to the person; empty for any other call."""
    message: object = reply.call.arguments.get("message")
    return message if reply.call.name == SEND_MESSAGE and isinstance(message, str) else ""


_FENCE = re.compile(r"^\s*```(?:json)?\s*|\s*```\s*$")
MOST_INVALID = 3
"""Invalid replies in a row after which the turn fails."""


class InvalidReplies:
    """Those of one turn, in a row. `in_form`: answers are JSON of a schema, as send_message has it in this turn."""

    def __init__(self, *, in_form: bool = False) -> None:
        self._in_form = in_form
        self.reset()

    def reset(self) -> None:
        self._count = 0
        self._had_words = False

    def as_answer(
        self, error: ProtocolViolation, tools: Sequence[ToolSpec], *, last: bool
    ) -> Reply:
        """The answer that a model has given in plain words once more, though it had to call a tool.

        `error` says what came instead of a call; `last`: whether it can't be asked again.

        Raises:
            ProtocolViolation: the one given: it is no answer, or a complaint comes first.
        """
        if self._in_form:
            return _json_answer(error, tools)
        warned = self._had_words or last or self._count + 1 >= MOST_INVALID
        may_speak = any(spec.name == SEND_MESSAGE for spec in tools)
        if not (warned and may_speak and 0 < len(error.words) <= LONGEST_MESSAGE):
            raise error
        call = FunctionCall(new_call_id(), SEND_MESSAGE, {"message": error.words})
        return Reply(call, error.usage, error.thought)

    def add(self, error: ProtocolViolation, mode: ReplyMode) -> None:
        """Count one.

        Raises:
            ProtocolViolation: what the caller gets when there are too many of them; they know no tools.
        """
        self._count += 1
        self._had_words = self._had_words or bool(error.words)
        if self._count < MOST_INVALID:
            return
        kind = "no valid tool call" if mode == "tools" else "empty"
        raise ProtocolViolation(
            f"The model doesn't follow the protocol: {self._count} of its replies were {kind}. "
            f"The last one: {excerpt(error.raw)}",
            raw=error.raw,
            hint=error.hint
            or "The agent stays usable, and its history says what was wrong. `memserver doctor` tries the "
            "model; MEMSERVER_LLM_MODE (tools, json_schema or text) says how it is asked, or take another model.",
        ) from error


def _json_answer(error: ProtocolViolation, tools: Sequence[ToolSpec]) -> Reply:
    """The answer that a model has written as it stands instead of calling send_message with it. Raises the error: it is none."""
    speaks = next((spec for spec in tools if spec.name == SEND_MESSAGE), None)
    try:
        if speaks is None:
            raise error
        written = checked_json(read_json(_FENCE.sub("", error.raw)))
        arguments = check_arguments(speaks, {"message": written})
    except (ValueError, ProtocolViolation):
        raise error from None
    return Reply(FunctionCall(new_call_id(), SEND_MESSAGE, arguments), error.usage, error.thought)


def with_json_message(reply: Reply) -> Reply:
    """The reply whose message, which is of a schema of the client's, is its JSON text."""
    call = reply.call
    if call.name != SEND_MESSAGE:
        return reply
    text = json.dumps(call.arguments["message"], ensure_ascii=False)
    return replace(reply, call=replace(call, arguments={**call.arguments, "message": text}))


def complaint(prompts: Prompts, error: ProtocolViolation, mode: ReplyMode) -> str:
    """What the model reads after a reply that was none."""
    return prompts.render(prompt_file("invalid_reply.md", mode), reason=error.complaint)
