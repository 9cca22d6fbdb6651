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
from memserver.openai_http.errors import refusal_of

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

_NAMES_THE_MODE = re.compile(r"tool|function|response_format|schema", re.IGNORECASE)
_MAY_BE_THE_MODE = frozenset({400, 404, 405, 415, 422, 500, 501, None})
_SHOWN = 200
_NO_CALL = re.compile(
    # Groq: https://github.com/agno-agi/agno/issues/4090; Ollama; llama.cpp
    r"tool_use_failed|failed to call a function|error parsing tool call|does not match the expected .{0,40}format",
    re.IGNORECASE,
)

Ask = Callable[[ToolCallMode, int | None], Awaitable[RawReply]]
"""Sends the question in one way, with so many tokens of output, None as many as a turn gives; gives the reply."""


def is_no_call(error: ModelError) -> bool:
    """Whether the endpoint refuses what the model wrote, and not the request: the same may succeed next time."""
    refusal = refusal_of(error)
    return refusal is not None and bool(_NO_CALL.search(f"{refusal.words} {refusal.kind}"))


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
    """Find the best mode that an endpoint takes, by a few small requests.

    Raises:
        ModelError: a failure that says nothing about the mode, or a refusal of every one.
    """
    against: list[_Against] = []
    modes: tuple[ToolCallMode, ...] = ("tools", "json_schema")
    for mode in modes:
        found = await _try(mode, ask)
        if found is None:
            return _as_detected(mode, against)
        against.append(found)
    if all(each.was_refused for each in against):
        # Where this is refused as well, it was something else that was refused.
        await ask("text", None)
    return _as_detected("text", against)


@dataclass(frozen=True, slots=True)
class _Against:
    words: str
    is_sure: bool
    was_refused: bool = False


def _as_detected(mode: ToolCallMode, against: list[_Against]) -> DetectedMode:
    why = "; ".join(each.words for each in against)
    return DetectedMode(mode, why, all(each.is_sure for each in against))


async def _try(mode: ToolCallMode, ask: Ask) -> _Against | None:
    """What speaks against this mode; None if nothing does. Raises what says nothing of it."""
    try:
        reply = await ask(mode, None)
    except (ModelRejected, ModelUnavailable) as error:
        refusal = refusal_of(error)
        # llama.cpp says 500 and routers 404 where there are no tools.
        if refusal is None or refusal.status not in _MAY_BE_THE_MODE:
            raise
        shown = f'{IN_WORDS[mode]} refused: "{" ".join(refusal.words.split())[:_SHOWN]}"'
        is_sure = _NAMES_THE_MODE.search(refusal.words) is not None and not is_no_call(error)
        return _Against(shown, is_sure, was_refused=True)
    if _is_valid(mode, reply):
        return None
    if reply.finish_reason == "length":
        return await _try_with_room_to_think(mode, ask)
    return _Against(f"{IN_WORDS[mode]} ignored", is_sure=True)


async def _try_with_room_to_think(mode: ToolCallMode, ask: Ask) -> _Against | None:
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
    """Whether the reply is what an endpoint gives that keeps to this mode, and no lucky text."""
    try:
        if mode == "tools":
            return bool(reply.calls and parse_native(reply, [PROBE]))
        return bool(read_json(without_reasoning(reply).content) and parse_json(reply, [PROBE]))
    except (ProtocolViolation, ValueError):
        return False
