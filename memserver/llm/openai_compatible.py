"""A model behind any OpenAI-compatible endpoint, vLLM first.

Owns what is asked of the endpoint, in each mode: `tools` uses native tool calling, `json_schema` holds
the answer to a schema, `text` has the system message say all. Leaves the wire to `wire` and `endpoint`,
the reply's validity to `reply_parser`, and how `auto` is decided to `modes`. All modes give the same
value.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from typing_extensions import override

from memserver.errors import (
    ModelAnswerTooLarge,
    ModelError,
    ModelNotFound,
    ModelUnavailable,
    ProtocolViolation,
)
from memserver.llm.base import ChatModel, Reply, TextSink, Written
from memserver.llm.bounded_validator import bounded
from memserver.llm.cards import window_of
from memserver.llm.control_tokens import defused
from memserver.llm.modes import IN_WORDS, PROBE, PROBE_PROMPT, find_way
from memserver.llm.profile import ToolCallMode
from memserver.llm.reasoning import separated
from memserver.llm.reply_parser import RawReply, parse_json, parse_native, parse_text
from memserver.llm.text_stream import ArgumentText, CallText, PlainText
from memserver.llm.tokens import ByteBound, TokenCounter
from memserver.llm.tool_names import is_spoken
from memserver.llm.tool_schema import native_tools_json, response_format_json, tools_as_text
from memserver.llm.wire import (
    StreamedReply,
    joined,
    json_messages,
    native_messages,
    raw_reply,
    usage_of,
)
from memserver.messages import JsonObject, PromptMessage, ToolSpec, Usage
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import Endpoint, EndpointClient

_LOG = logging.getLogger(__name__)

Mode = Literal["auto"] | ToolCallMode
DEFAULT_WINDOW = 8192
MOST_CHARACTERS = 4_000_000
"""Of a reply that streams."""


@dataclass(frozen=True, slots=True)
class JsonAnswers:
    """How the mode json_schema asks.

    Attributes:
        schema: more for the root of the answer's schema, such as vLLM's x-guidance.
        list_tools: the system message tells the tools; the schema holds the model to them anyway.
    """

    schema: Mapping[str, Any] = field(default_factory=dict)
    list_tools: bool = True


class OpenAICompatible(ChatModel):
    """Asks an endpoint's chat completions for one tool call at a time."""

    def __init__(  # noqa: PLR0913 - all but the endpoint have defaults and are named
        self,
        endpoint: Endpoint,
        *,
        model: str | None = None,
        mode: Mode = "auto",
        context_window: int | None = None,
        window_is_limit: bool = False,
        counter: TokenCounter | None = None,
        body: Mapping[str, Any] | None = None,
        answers: JsonAnswers | None = None,
        seed: int | None = None,
        circuit: Circuit | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            endpoint: where it is.
            model: what the endpoint calls it; None takes the first that the endpoint lists.
            mode: auto asks the endpoint at the first use, and keeps to what it took.
            context_window: tokens; None takes what the endpoint says, else 8192.
            window_is_limit: the endpoint is asked in any case, and the smaller window holds.
            counter: counts tokens; None takes the upper bound in bytes. Closed with the model.
            body: more for the body of every request (temperature, seed, chat_template_kwargs, …); a
                None takes a field away.
            answers: how the mode json_schema asks.
            seed: each request has one of its own, made of this and of its messages; not where `body` has one.
            circuit: the endpoint's, shared by all its models; None asks it always.
        """
        self.name = model or ""
        self.message_overhead = 16
        self._way: ToolCallMode | None = None if mode == "auto" else mode
        self._client = EndpointClient(endpoint, circuit)
        self._counter = counter or ByteBound()
        self._given_window = context_window
        self._fixed_window = None if window_is_limit else context_window
        self._window = self._fixed_window
        self._assumed = False
        self._body = dict(body or {})
        self._seed = None if "seed" in self._body else seed
        self._answers = answers or JsonAnswers()
        self._thinks_unopened = False
        self._asking = asyncio.Lock()
        self._probing = asyncio.Lock()

    @property
    @override
    def expected_scale(self) -> float:
        return self._counter.expected_scale

    @property
    @override
    def mode(self) -> Mode:
        """How the model is asked; auto until the endpoint showed what it takes."""
        return self._way or "auto"

    @override
    async def context_window(self) -> int:
        if self._window is None:
            await self._ask_about_model()
        return self._window or DEFAULT_WINDOW

    @property
    @override
    def window_is_assumed(self) -> bool:
        return self._window is None or self._assumed

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self._counter.count([defused(text) for text in texts])

    @override
    async def check(self) -> None:
        """Ask the endpoint whether it is there and has the model; nothing is generated.

        Raises:
            ModelError: it is not there, refuses the key, or has other models only.
        """
        cards = await self._client.check()
        if cards is None or (self.name and self.name not in {card.get("id") for card in cards}):
            raise _not_found(self.name, cards)

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        """What these tools add to a prompt, as text, for counting; the longer one while that is open."""
        if self._way is None:
            return max(native_tools_json(tools), tools_as_text(tools), key=_bytes)
        if self._way == "tools":
            return native_tools_json(tools)
        told = self._told(self._way, tools)
        return tools_as_text(told) if told else ""

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        async with self._telling_what_there_is():
            way = await self._known_way(max_tokens)
            request = self._request(way, prompt, tools)
            if on_text is None:
                body = self._body_of(request, max_tokens)
                answer = await self._client.post("/chat/completions", body)
                raw, usage = _whole(answer), usage_of(answer)
            else:
                body = self._body_of(request, max_tokens, streamed=True)
                message = _Call(way, tools, holds=self._thinks_unopened)
                raw, usage = await self._listen(body, message, on_text)
        self._note_thinking(raw)
        parse = parse_native if way == "tools" or raw.calls else parse_json
        with _costing(usage):
            parsed = await bounded(partial(parse, raw, tools), raw.size)
        return Reply(parsed.call, usage, parsed.text)

    @override
    async def write(
        self,
        prompt: Sequence[PromptMessage],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Written:
        async with self._telling_what_there_is():
            request = _Request(await self._plain_messages(prompt, max_tokens))
            if on_text is None:
                body = self._body_of(request, max_tokens)
                answer = await self._client.post("/chat/completions", body)
                raw, usage = _whole(answer), usage_of(answer)
            else:
                body = self._body_of(request, max_tokens, streamed=True)
                message = _Plain(holds=self._thinks_unopened)
                raw, usage = await self._listen(body, message, on_text)
        self._note_thinking(raw)
        with _costing(usage):
            return Written(parse_text(raw), usage)

    @override
    async def aclose(self) -> None:
        await self._client.aclose()
        await self._counter.aclose()

    def _note_thinking(self, raw: RawReply) -> None:
        """From a thought on that nothing opened, text is held back until the next one has ended."""
        self._thinks_unopened = self._thinks_unopened or separated(raw.content, calls=True).unopened

    @asynccontextmanager
    async def _telling_what_there_is(self) -> AsyncIterator[None]:
        """Say of a model that is not there which ones are; what was taken to be its window is forgotten."""
        try:
            yield
        except ModelNotFound as error:
            self._window = self._fixed_window
            cards = None
            with suppress(ModelError):
                cards = await self._client.models()
            raise _not_found(self.name, cards) from error

    async def _known_way(self, max_tokens: int) -> ToolCallMode:
        """How the model is asked. Found out once; whoever comes meanwhile waits for the answer."""
        await self._know_name()
        if self._way is not None:
            return self._way
        async with self._probing:
            if self._way is None:
                self._way = await find_way(lambda way: self._probe(way, max_tokens))
                _LOG.info("The model %s is asked by %s.", self.name, IN_WORDS[self._way])
        return self._way

    async def _probe(self, way: ToolCallMode, max_tokens: int) -> RawReply:
        """Put the probe's question; where a schema holds the answer, nothing else tells its form."""
        request = self._request(way, PROBE_PROMPT, [PROBE])
        if way == "tools":
            request = replace(request, fields={**request.fields, "tool_choice": "required"})
        else:
            request = replace(request, messages=json_messages(PROBE_PROMPT))
        body = self._body_of(request, max_tokens)
        return _whole(await self._client.post("/chat/completions", body))

    async def _plain_messages(
        self, prompt: Sequence[PromptMessage], max_tokens: int
    ) -> list[JsonObject]:
        """A prompt that no call answers; only the calls in it look different in each way."""
        if all(message.call is None for message in prompt):
            await self._know_name()
            return json_messages(prompt)
        way = await self._known_way(max_tokens)
        return native_messages(prompt) if way == "tools" else json_messages(prompt)

    def _told(self, way: ToolCallMode, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """The tools that the system message tells of."""
        return tools if way == "text" or (way == "json_schema" and self._answers.list_tools) else ()

    def _request(
        self, way: ToolCallMode, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]
    ) -> "_Request":
        if way == "tools":
            fields = {"tool_choice": _choice(tools), "parallel_tool_calls": False}
            return _Request(native_messages(prompt), fields, f'"tools":{native_tools_json(tools)}')
        messages = json_messages(prompt, self._told(way, tools))
        if way == "text":
            return _Request(messages)
        schema = response_format_json(tools, self._answers.schema)
        return _Request(messages, prepared=f'"response_format":{schema}')

    def _body_of(self, request: "_Request", max_tokens: int, *, streamed: bool = False) -> bytes:
        fields: JsonObject = {"model": self.name, "max_tokens": max_tokens, **request.fields}
        if streamed:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        messages = _dumps(request.messages)
        if self._seed is not None:
            fields["seed"] = _seed_of(self._seed, messages)
        kept = {name: value for name, value in (fields | self._body).items() if value is not None}
        more = [",", request.prepared] if request.prepared else []
        return joined([_dumps(kept)[:-1], ',"messages":', messages, *more, "}"])

    async def _listen(
        self, body: bytes, message: "_Call | _Plain", on_text: TextSink
    ) -> tuple[RawReply, Usage]:
        """Stream a reply, and tell its message's text while it comes."""
        reply = StreamedReply()
        async with aclosing(self._client.stream("/chat/completions", body)) as events:
            async for event in events:
                if text := message.text(reply, *reply.add(event)):
                    on_text(text)
        if text := message.end():
            on_text(text)
        raw = reply.whole()
        if raw.size > MOST_CHARACTERS:
            raise ModelAnswerTooLarge(f"The model wrote more than {MOST_CHARACTERS} characters.")
        return raw, reply.usage

    async def _know_name(self) -> None:
        if not self.name:
            await self._ask_about_model()
        if not self.name:
            raise ModelUnavailable(
                "The endpoint lists no model.", hint="Name one in MEMSERVER_LLM_MODEL."
            )

    async def _ask_about_model(self) -> None:
        """Learn the model's name and window, once; whoever comes meanwhile waits for the answer."""
        async with self._asking:
            if self.name and self._window is not None:
                return
            cards = await self._client.models() or []
            if not self.name and cards:
                self.name = str(cards[0].get("id", ""))
            if self._window is None and self.name:
                known = (window_of(self.name, cards), self._given_window)
                self._assumed = not any(known)
                self._window = min(filter(None, known), default=DEFAULT_WINDOW)


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked, before the fields of every request: `prepared` is JSON text, cached with the tools."""

    messages: list[JsonObject]
    fields: Mapping[str, Any] = field(default_factory=dict)
    prepared: str = ""


class _Call:
    """Reads the message out of a call that streams, in the way in which it was asked for."""

    def __init__(self, way: ToolCallMode, tools: Sequence[ToolSpec], *, holds: bool) -> None:
        self._native = way == "tools"
        self._tools = tools
        self._in_content, self._in_arguments = CallText(tools, holds=holds), ArgumentText()

    def text(self, reply: StreamedReply, content: str, arguments: str) -> str:
        """What of the message an event brought."""
        if not self._native:
            return self._in_content.feed(content)
        if not arguments or not is_spoken(reply.first_name, self._tools):
            return ""
        return self._in_arguments.feed(arguments)

    def end(self) -> str:
        """What is known to be the message's only at the end."""
        return self._in_content.end()


class _Plain:
    """Reads a message that is the reply itself."""

    def __init__(self, *, holds: bool) -> None:
        self._text = PlainText(holds=holds)

    def text(self, _reply: StreamedReply, content: str, _arguments: str) -> str:
        """What of the message an event brought."""
        return self._text.feed(content)

    def end(self) -> str:
        """What is known to be the message's only at the end."""
        return self._text.end()


@contextmanager
def _costing(usage: Usage) -> Iterator[None]:
    """Say of a reply that is none what it cost."""
    try:
        yield
    except ProtocolViolation as violation:
        violation.usage = usage
        raise


def _choice(tools: Sequence[ToolSpec]) -> object:
    """One tool is named; of several, one must be called."""
    if len(tools) > 1:
        return "required"
    return {"type": "function", "function": {"name": tools[0].name}}


def _whole(answer: JsonObject) -> RawReply:
    if not answer.get("choices"):
        raise ModelUnavailable(
            f"The endpoint's answer holds no choice: {str(answer.get('error', ''))[:300]}",
            hint="Check that MEMSERVER_LLM_BASE_URL is an OpenAI-compatible endpoint.",
        )
    return raw_reply(answer)


def _not_found(name: str, cards: Sequence[JsonObject] | None) -> ModelNotFound:
    listed = ", ".join(str(card.get("id")) for card in cards or ())
    return ModelNotFound(
        f"The endpoint does not have the model {name or '(any)'}.",
        hint=f"It has: {listed or 'none that it lists'}. Load an adapter with `memserver models add`, give "
        "the agent another model, or check MEMSERVER_LLM_MODEL and MEMSERVER_LLM_BASE_URL.",
    )


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _seed_of(seed: int, messages: str) -> int:
    """31 bits: the same for the same prompt, and for another one as good as drawn anew."""
    digest = hashlib.sha256(f"{seed} {messages}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:4]) >> 1
