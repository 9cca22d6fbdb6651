"""How a model can be asked for a tool call, and the probe that finds out which way it takes.

Owns the small question, and what an answer or a refusal of it says about the endpoint. Leaves sending
to `openai_compatible`, which asks once for a model: what an endpoint can do does not change between turns.
"""

import re
from collections.abc import Awaitable, Callable

from memserver.errors import ModelRejected, ProtocolViolation
from memserver.llm.lossless import read_json
from memserver.llm.profile import ToolCallMode
from memserver.llm.reply_parser import RawReply, parse_json, parse_native, without_reasoning
from memserver.messages import PromptMessage, ToolSpec
from memserver.openai_http.errors import StatusError

IN_WORDS: dict[ToolCallMode, str] = {
    "tools": "native tool calls",
    "json_schema": "a JSON schema for its answer",
    "text": "the text of its system message",
}
PROBE = ToolSpec(
    "report_ready",
    "Report whether you are ready.",
    {
        "type": "object",
        "properties": {"ready": {"type": "boolean"}},
        "required": ["ready"],
        "additionalProperties": False,
    },
)
PROBE_PROMPT = (
    PromptMessage("system", "You act only by calling tools."),
    PromptMessage("user", "Report that you are ready."),
)
"""It tells neither the tool's name nor the form of an answer: where the tools or the schema are ignored,
a model finds them by no likely chance."""

_NAMES_THE_WAY = re.compile(r"tool|function|response_format|schema", re.IGNORECASE)


async def find_way(ask: Callable[[ToolCallMode], Awaitable[RawReply]]) -> ToolCallMode:
    """Find the best way that an endpoint takes, by at most three small requests.

    Args:
        ask: sends the question in one way and gives the reply.

    Raises:
        ModelError: a failure that says nothing about the way, or a refusal of every way.
    """
    refusals = 0
    for way in ("tools", "json_schema"):
        try:
            reply = await ask(way)
        except ModelRejected as error:
            if not _is_about_the_way(error):
                raise
            refusals += 1
        else:
            if _is_valid(way, reply):
                return way
    if refusals == 2:
        await ask("text")  # where this is refused as well, it was something else that was refused
    return "text"


def _is_valid(way: ToolCallMode, reply: RawReply) -> bool:
    """Whether the reply is what an endpoint gives that keeps to this way, and no lucky text."""
    try:
        if way == "tools":
            return bool(reply.calls) and bool(parse_native(reply, [PROBE]))
        return bool(read_json(without_reasoning(reply).content)) and bool(
            parse_json(reply, [PROBE])
        )
    except (ProtocolViolation, ValueError):
        return False


def _is_about_the_way(error: ModelRejected) -> bool:
    """Whether a refusal is of the request's form; some routers say 404 where no model has tools."""
    cause = error.__cause__
    if not isinstance(cause, StatusError):
        return False
    if cause.status == 404:
        return _NAMES_THE_WAY.search(cause.told) is not None
    return cause.status in {400, 422}
