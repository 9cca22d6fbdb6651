"""How a model can be asked for a tool call, and the probe that finds out which mode its endpoint takes."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    ProtocolViolation,
)
from memserver.llm.coercion import read_json
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
"""It says neither the tool's name nor the form of an answer: where the tools or the schema are ignored,
a model finds them by no likely chance."""
ROOM_TO_THINK = 2048
"""Tokens of output for a model that thought to the end of what a turn gives it."""

_NAMES_THE_WAY = re.compile(r"tool|function|response_format|schema", re.IGNORECASE)
_MAY_BE_THE_WAY = frozenset({400, 404, 405, 415, 422, 500, 501, None})
_SHOWN = 200
_NO_CALL = re.compile(
    # Groq: https://github.com/agno-agi/agno/issues/4090; Ollama; llama.cpp
    r"tool_use_failed|failed to call a function|error parsing tool call|does not match the expected .{0,40}format",
    re.IGNORECASE,
)

Ask = Callable[[ToolCallMode, int | None], Awaitable[RawReply]]
"""Sends the question in one way, with so many tokens of output, None as many as a turn gives; gives the reply."""


def is_no_call(error: ModelError) -> bool:
    """Whether the endpoint refuses what the model wrote, and not what was asked: the same may succeed next time."""
    cause = error.__cause__
    if not isinstance(cause, StatusError):
        return False
    return _NO_CALL.search(f"{cause.words} {cause.kind}") is not None


@dataclass(frozen=True, slots=True)
class DetectedMode:
    """The best mode that an endpoint takes.

    Attributes:
        why: what speaks against the better ones.
        is_sure: what was refused was refused for what it is, and not perhaps for a passing reason.
    """

    mode: ToolCallMode
    why: str = ""
    is_sure: bool = True


async def detect_mode(ask: Ask) -> DetectedMode:
    """Find the best way that an endpoint takes, by a few small requests.

    Raises:
        ModelError: a failure that says nothing about the way, or a refusal of every way.
    """
    against: list[_Against] = []
    for mode in ("tools", "json_schema"):
        found = await _tried(mode, ask)
        if found is None:
            return _way(mode, against)
        against.append(found)
    if all(each.was_refused for each in against):
        await ask(
            "text", None
        )  # where this is refused as well, it was something else that was refused
    return _way("text", against)


@dataclass(frozen=True, slots=True)
class _Against:
    words: str
    is_sure: bool
    was_refused: bool = False


def _way(mode: ToolCallMode, against: list[_Against]) -> DetectedMode:
    why = "; ".join(each.words for each in against)
    return DetectedMode(mode, why, all(each.is_sure for each in against))


async def _tried(mode: ToolCallMode, ask: Ask) -> _Against | None:
    """What speaks against this way; None if nothing does. Raises what says nothing of it."""
    try:
        reply = await ask(mode, None)
    except ModelError as error:
        if not _may_be_about_the_way(error):
            raise
        cause = error.__cause__
        words = cause.words if isinstance(cause, StatusError) else error.message
        shown = f'{IN_WORDS[mode]} refused: "{" ".join(words.split())[:_SHOWN]}"'
        is_sure = _NAMES_THE_WAY.search(words) is not None and not is_no_call(error)
        return _Against(shown, is_sure, was_refused=True)
    if _is_valid(mode, reply):
        return None
    if reply.finish_reason == "length":
        return await _with_room_to_think(mode, ask)
    return _Against(f"{IN_WORDS[mode]} ignored", is_sure=True)


async def _with_room_to_think(mode: ToolCallMode, ask: Ask) -> _Against | None:
    try:
        reply = await ask(mode, ROOM_TO_THINK)
    except (ModelRejected, ModelUnavailable, ContextOverflow):
        reply = None
    if reply is not None and _is_valid(mode, reply):
        return None
    was_cut = reply is None or reply.finish_reason == "length"
    how = "cut off before a call" if was_cut else "ignored"
    return _Against(f"{IN_WORDS[mode]} {how}", is_sure=not was_cut)


def _is_valid(mode: ToolCallMode, reply: RawReply) -> bool:
    """Whether the reply is what an endpoint gives that keeps to this way, and no lucky text."""
    try:
        if mode == "tools":
            return bool(reply.calls) and bool(parse_native(reply, [PROBE]))
        return bool(read_json(without_reasoning(reply).content)) and bool(
            parse_json(reply, [PROBE])
        )
    except (ProtocolViolation, ValueError):
        return False


def _may_be_about_the_way(error: ModelError) -> bool:
    """Whether a refusal may be of the request's form: llama.cpp says 500 and routers 404 where there are no tools."""
    cause = error.__cause__
    if not isinstance(error, ModelRejected | ModelUnavailable) or not isinstance(
        cause, StatusError
    ):
        return False
    return cause.status in _MAY_BE_THE_WAY
