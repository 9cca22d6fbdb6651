"""From a model's raw reply to exactly one valid tool call, or to plain text.

A reply that is no valid call raises a ProtocolViolation whose complaint is a sentence that the model can act on, since
that is what it is shown next; its message is for people.

When a reply holds several calls, the first one counts and the rest are dropped, as in MemGPT 0.3: the later ones were
written without the first one's result, and one step of an agent is one call. An invalid first call is a violation even
if a valid one follows, for the same reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from memserver.errors import ProtocolViolation, excerpt
from memserver.llm.call_ids import new_call_id
from memserver.llm.coercion import read_json, read_json_at
from memserver.llm.reasoning import separate
from memserver.llm.tool_arguments import check_arguments
from memserver.llm.tool_names import SPOKEN, resolve_name
from memserver.messages import FunctionCall, JsonObject, ToolSpec, ToolSpecs
from memserver.text import checked_json, clean

_RAW_LIMIT = 10_000
_NAMES_LIMIT = 600
_OBJECTS_TRIED = 16
MORE_OUTPUT = "Its replies reach the output limit: raise MEMSERVER_LLM_MAX_OUTPUT_TOKENS, or the agent's max_output_tokens."
_OBJECT_START = re.compile(r'\{\s*["}]')
_WRAPPING = re.compile(r"^\s*(?:<tool_call>|```(?:json)?)?\s*")


@dataclass(frozen=True, slots=True)
class RawCall:
    """A native tool call as the endpoint sent it; nothing in it is checked."""

    name: object
    arguments: object
    id: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else the call came with, such as Gemini's thought_signature."""


@dataclass(frozen=True, slots=True)
class RawReply:
    content: str = ""
    calls: tuple[RawCall, ...] = ()
    reasoning: str = ""
    finish_reason: str = ""
    refusal: str = ""
    """The sentence with which the provider's model refuses to answer, where it has a field of its own."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else the message came with, such as DeepSeek's reasoning_content."""

    @property
    def size(self) -> int:
        arguments = (call.arguments for call in self.calls)
        in_calls = sum(len(each) if isinstance(each, str) else 100_000 for each in arguments)
        return len(self.content) + len(self.reasoning) + in_calls


@dataclass(frozen=True, slots=True)
class ParsedReply:
    call: FunctionCall
    text: str


def without_reasoning(reply: RawReply, *, calls: bool = True) -> RawReply:
    """The reply with what was thought in its content counted as reasoning: not every endpoint takes that apart."""
    parts = separate(reply.content, calls=calls)
    if parts.said == reply.content:
        return reply
    thoughts = filter(None, (reply.reasoning.strip(), parts.thought))
    return replace(reply, content=parts.said, reasoning="\n\n".join(thoughts))


def parse_native(reply: RawReply, tools: ToolSpecs) -> ParsedReply:
    """The call in a reply of native tool calling.

    Where the endpoint found no call but the content is one, written out as JSON, that is taken: it is
    what vLLM hands over when its tool parser gives up. JSON after other prose is not: there the model
    may be quoting.

    A lone call of a reply that reached the output limit is refused, whole as it looks: vLLM's parsers
    close what was cut off, so half a text would be taken for all of it.

    Raises:
        ProtocolViolation: no call, or not a valid one.
    """
    reply = without_reasoning(reply, calls=not reply.calls)
    with_raw = _Complaint(reply)
    if with_raw.was_cut_off and len(reply.calls) == 1:
        raise with_raw.about_length()
    if reply.calls:
        first = reply.calls[0]
        call = _check_call(first.name, first.arguments, tools, with_raw)
        return ParsedReply(call, _thought(reply.content, reply))
    start = _WRAPPING.match(reply.content)
    if start is not None and reply.content.startswith("{", start.end()):
        return parse_json(reply, tools)
    raise with_raw.about_nothing_called(tools)


def parse_json(reply: RawReply, tools: ToolSpecs) -> ParsedReply:
    """The call in a reply of JSON text, `{"tool": name, "arguments": {…}}`; prose around it is kept.

    `name` and `parameters`, as other formats call them, are understood as well.

    Raises:
        ProtocolViolation: no call, or not a valid one.
    """
    reply = without_reasoning(reply)
    with_raw = _Complaint(reply)
    found = _first_call(reply.content, with_raw)
    if found is None:
        raise with_raw.about_nothing_called(tools)
    written, start = found
    name = written["tool"] if "tool" in written else written["name"]
    arguments = written["arguments"] if "arguments" in written else written.get("parameters")
    before = _WRAPPING.sub("", reply.content[:start]).strip()
    return ParsedReply(_check_call(name, arguments, tools, with_raw), _thought(before, reply))


def parse_text(reply: RawReply) -> str:
    """The plain text of a reply, without reasoning and without white space around it.

    Raises:
        ProtocolViolation: there is none.
    """
    reply = without_reasoning(reply, calls=False)
    text = clean(reply.content).strip()
    if not text:
        hint = MORE_OUTPUT if reply.finish_reason == "length" else ""
        raise ProtocolViolation("The model wrote nothing.", hint=hint)
    return text


def _thought(prose: str, reply: RawReply) -> str:
    prose = clean(prose).strip()
    return prose or clean(reply.reasoning[:_RAW_LIMIT]).strip()


def _first_call(content: str, complaint: "_Complaint") -> tuple[JsonObject, int] | None:
    """The first JSON object that names a tool. One that breaks off ends the search.

    What lies inside a broken object is never looked at: an inner object that looks like a call was
    some argument's value.
    """
    position = 0
    for _ in range(_OBJECTS_TRIED):
        start = _OBJECT_START.search(content, position)
        if start is None:
            return None
        try:
            value, position = read_json_at(content, start.start())
        except ValueError as error:
            raise complaint.about_broken_json(error) from error
        if isinstance(value, dict) and ("tool" in value or "name" in value):
            return value, start.start()
    return None


def _check_call(
    name: object, arguments: object, tools: ToolSpecs, complaint: "_Complaint"
) -> FunctionCall:
    spec = resolve_name(name, tools)
    if spec is None:
        shown = _shown(name)[:80] or "(none)"
        raise complaint(f"There is no tool {shown}. Call one of: {_names(tools)}.")
    try:
        given = checked_json(_as_object(spec, arguments, complaint))
    except ValueError as error:
        raise complaint.about_broken_json(error, of=spec.name) from error
    try:
        return FunctionCall(new_call_id(), spec.name, check_arguments(spec, given))
    except ProtocolViolation as violation:
        raise complaint(violation.complaint) from violation


def _as_object(spec: ToolSpec, arguments: object, complaint: "_Complaint") -> JsonObject:
    """The arguments as an object: nothing at all is `{}`, JSON text (even twice encoded) is read."""
    value: Any = arguments
    for _ in range(2):
        if not isinstance(value, str) or not value.strip():
            break
        try:
            value = read_json(value)
        except ValueError as error:
            raise complaint.about_broken_json(error, of=spec.name) from error
    if value is None or (isinstance(value, str) and not value.strip()):
        if complaint.was_cut_off:
            raise complaint.about_length()
        return {}
    if isinstance(value, dict):
        return value
    raise complaint(f"The arguments of {spec.name} must be a JSON object with named arguments.")


def _names(tools: ToolSpecs) -> str:
    names = ", ".join(spec.name for spec in tools)
    return names if len(names) <= _NAMES_LIMIT else f"{names[:_NAMES_LIMIT]}…"


def _shown(value: object) -> str:
    """Any value that an endpoint sent, as text; what it nests may be more than the stack holds."""
    try:
        return str(value)
    except RecursionError:
        return "(it nests too deep to be shown)"


_HALF_CALL = re.compile(
    r'"(?:tool|name|function|arguments|parameters)"\s*:|<\|?(?:tool|function|python_tag|invoke)|'
    r"\[TOOL_CALLS\]|<\uff5ctool|```tool|^\s*(?:```(?:json)?)?\s*[{\[]",
    re.IGNORECASE,
)
"""What a call, or a part of one, looks like in any format."""
_BESIDE = r"[\s`\"'>*]*"


def _words(content: str, tools: ToolSpecs) -> str:
    """The content as an answer in plain words; empty where a call was begun in it."""
    content = content.strip()
    names = "|".join(re.escape(spec.name) for spec in tools)
    begun = rf"\b(?:{names})(?:\(|<\||{_BESIDE}\{{\s*[\"}}])|\b{SPOKEN}{_BESIDE}[:=(\[]"
    if _HALF_CALL.search(content) or re.search(begun, content) or resolve_name(content, tools):
        return ""
    for start in islice(_OBJECT_START.finditer(content), _OBJECTS_TRIED):
        try:
            read_json_at(content, start.start())
        except ValueError:
            return ""
    return clean(content)


class _Complaint:
    """Makes violations that carry the reply as it came, without its reasoning."""

    def __init__(self, reply: RawReply) -> None:
        self._reply = reply
        self.was_cut_off = reply.finish_reason == "length"

    def __call__(self, complaint: str, *, words: str = "", hint: str = "") -> ProtocolViolation:
        calls = "".join(
            f"\n{_shown(call.name)}({_shown(call.arguments)})" for call in self._reply.calls
        )
        raw = clean((self._reply.content + calls)[:_RAW_LIMIT])
        message = f"The model's reply was no valid tool call: {excerpt(raw)}"
        return ProtocolViolation(
            message,
            complaint=clean(complaint),
            raw=raw,
            words=words,
            thought=_thought("", self._reply),
            hint=hint,
        )

    def about_length(self) -> ProtocolViolation:
        return self(
            "Your answer reached the output limit before its call was known to be complete. "
            "Make a shorter call, and write nothing after it.",
            hint=MORE_OUTPUT,
        )

    def about_broken_json(self, error: ValueError, of: str = "") -> ProtocolViolation:
        if self.was_cut_off:
            return self.about_length()
        what = f"The arguments of {of} are" if of else "Your answer is"
        return self(f"{what} not valid JSON ({str(error)[:120]}). Write the whole call again.")

    def about_nothing_called(self, tools: ToolSpecs) -> ProtocolViolation:
        if self.was_cut_off:
            return self.about_length()
        if self._reply.content.strip():
            problem = "Your answer was text without a tool call; nobody has seen it."
        elif self._reply.reasoning.strip():
            problem = "Your answer had reasoning only and no tool call."
        else:
            problem = "Your answer was empty."
        words = _words(self._reply.content, tools)
        return self(f"{problem} Call exactly one of: {_names(tools)}.", words=words)
