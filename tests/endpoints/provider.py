"""What the profile of a provider is made of: what it refuses, how it answers, and where that is known from.

A rule is a few words, the public source, and a short function: a `check` that refuses a request, or a `shape` that
changes a reply into what this provider makes of it. The stub asks the checks in their order.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memserver.messages import JsonObject

DATE = "2026-11-29"
"""When the rules were read up."""
SMALL = 6_000
"""Tokens of most stubs' windows: fewer than what memserver assumes where nothing is said."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that is no success."""

    message: str
    status: int = 400
    code: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """More for the body."""
    is_overflow: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says, before it has the provider's form."""

    content: str = ""
    calls: tuple[JsonObject, ...] = ()
    """Each with `name` and `arguments`, as JSON text, and what else the provider sends with it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else the message has."""


@dataclass
class Memory:
    """What the stub remembers of one provider.

    Attributes:
        failing: refusals that the next completions get.
        refused: what was refused, in words; neither `failing` nor prompts that were too long.
        overflows: how many prompts were too long.
        bodies: each request for a completion.
        given: marks that were sent with calls and have to come back.
        asked: how often each thing was seen that a rule counts.
    """

    failing: list[Refused] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    overflows: int = 0
    bodies: list[JsonObject] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    asked: dict[str, int] = field(default_factory=dict)

    def count(self, thing: str) -> int:
        """How often it has been seen, this time included."""
        self.asked[thing] = self.asked.get(thing, 0) + 1
        return self.asked[thing]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a completion."""

    body: JsonObject
    memory: Memory

    @property
    def messages(self) -> list[JsonObject]:
        messages: list[JsonObject] = self.body["messages"]
        return messages

    @property
    def tools(self) -> list[JsonObject]:
        """The functions that it offers natively."""
        return [tool["function"] for tool in self.body.get("tools") or ()]


Check = Callable[[Asked], Refused | None]
Shape = Callable[[Asked, Reply], Reply]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing in which a provider differs."""

    words: str
    source: str
    check: Check | None = None
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """How a streamed reply comes.

    Attributes:
        index: of the calls: their number, always 0, or none at all.
        pieces: whether a call's arguments come in pieces.
        names: whether a call's name comes once or with each piece.
        first: events before the first one that says something.
        comment: a line that is no event, sent between them.
        usage: whether it comes unasked.
    """

    index: Literal["right", "zero", "none"] = "right"
    pieces: bool = True
    names: Literal["once", "each"] = "once"
    first: tuple[JsonObject, ...] = ()
    comment: str = ""
    usage: bool = False


def openai_error(refused: Refused) -> JsonObject:
    """As OpenAI words an error, and most others."""
    error = {
        "message": refused.message,
        "type": "invalid_request_error",
        "param": None,
        "code": refused.code,
    }
    return {"error": {**error, **refused.more}}


def flat_error(refused: Refused) -> JsonObject:
    """The error's fields without an object around them, as Mistral, Cerebras and old vLLM send them."""
    return {
        "object": "error",
        "message": refused.message,
        "type": "invalid_request_error",
        "param": None,
        "code": refused.code,
        **refused.more,
    }


def text_error(refused: Refused) -> JsonObject:
    """The error as a text, as LM Studio sends it."""
    return {"error": refused.message, **refused.more}


OVERFLOWS = "https://github.com/earendil-works/pi/blob/main/packages/ai/src/utils/overflow.ts"
"""Where the words stand in which providers say that a prompt is too long."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """How a provider says so: `words` with {read}, {written}, {total} and {window} filled in."""

    words: str
    code: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def refused(self, read: int, written: int, window: int) -> Refused:
        """The refusal of a prompt with so many tokens."""
        message = self.words.format(read=read, written=written, total=read + written, window=window)
        return Refused(message, code=self.code, more=self.more, is_overflow=True)


OPENAI_TOO_LONG = TooLong(
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens ({read} in the "
    "messages, {written} in the completion). Please reduce the length of the messages or completion.",
    "context_length_exceeded",
)
VLLM_TOO_LONG = TooLong(
    "This model's maximum context length is {window} tokens. However, you requested {written} output tokens and your "
    "prompt contains at least {read} input tokens, for a total of at least {total} tokens."
)


def openai_list(ids: tuple[str, ...]) -> JsonObject:
    """A list of models as OpenAI has it, without their windows."""
    cards = [{"id": name, "object": "model", "created": 0, "owned_by": "stub"} for name in ids]
    return {"object": "list", "data": cards}


QUOTA = Refused(
    "You exceeded your current quota, please check your plan and billing details.",
    429,
    "insufficient_quota",
)


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, or one model of it, as it is publicly known to answer.

    Attributes:
        slug: in the stub's addresses.
        title: in the docs.
        models: its names for two models; an agent changes from the first one to the second.
        rules: in which it differs.
        path: of its API, as a user sets it in the base URL, with a query if it has one.
        key: the header in which it wants the key.
        listing: what GET models answers, by the names; None: 404.
        tokenize: what POST tokenize answers; None: 404.
        stream: how streams come.
        error: how a refusal is worded.
        failure: what a request gets that fails for once; a status of 200 sends the error in place of an answer.
        window: tokens, of prompt and answer.
        overflow: how it says that a prompt is too long.
        settings: what a user has to set besides the base URL, the key and the model.
        violations: invalid replies that its model is known for, in one agent's story.
    """

    slug: str
    title: str
    models: tuple[str, str]
    rules: tuple[Rule, ...] = ()
    path: str = "/v1"
    key: Literal["authorization", "api-key"] = "authorization"
    listing: Callable[[tuple[str, ...]], object] | None = openai_list
    tokenize: Callable[[JsonObject, int], object] | None = None
    stream: Stream = Stream()
    error: Callable[[Refused], JsonObject] = openai_error
    failure: Refused = QUOTA
    window: int = SMALL
    overflow: TooLong = OPENAI_TOO_LONG
    settings: Mapping[str, Any] = field(default_factory=dict)
    violations: int = 0


def tokens(value: object) -> int:
    """About what a tokenizer makes of a text, or of a value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text) // 4 + 1
