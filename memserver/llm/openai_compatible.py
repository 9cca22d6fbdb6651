"""A model behind any OpenAI-compatible endpoint, vLLM first.

Owns what is asked of the endpoint, in either mode: `tools` uses native tool calling, `json_schema`
holds the answer to a schema. Leaves the wire to `wire` and `endpoint`, and the reply's validity to
`reply_parser`. Both modes give the same value.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import override

from memserver.endpoint import Endpoint, EndpointClient
from memserver.errors import ModelRejected, ModelUnavailable, ProtocolViolation
from memserver.llm.base import ChatModel, Reply, TextSink, Written
from memserver.llm.lossless import clean_text
from memserver.llm.reply_parser import RawReply, parse_json, parse_native, without_reasoning
from memserver.llm.text_stream import ArgumentText, CallText
from memserver.llm.tokens import ByteBound, TokenCounter
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

Mode = Literal["auto", "tools", "json_schema"]
DEFAULT_WINDOW = 8192
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window")
_SPOKEN = "send_message"


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
        counter: TokenCounter | None = None,
        body: Mapping[str, Any] | None = None,
        answers: JsonAnswers | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            endpoint: where it is.
            model: what the endpoint calls it; None takes the first that the endpoint lists.
            mode: auto is `tools`.
            context_window: tokens; None takes what the endpoint says, else 8192.
            counter: counts tokens; None takes the upper bound in bytes. Closed with the model.
            body: more for the body of every request (temperature, seed, chat_template_kwargs, …); a
                None takes a field away.
            answers: how the mode json_schema asks.
        """
        self.name = model or ""
        self.message_overhead = 16
        self._mode: Mode = "tools" if mode == "auto" else mode
        self._client = EndpointClient(endpoint)
        self._counter = counter or ByteBound()
        self._window = context_window
        self._body = dict(body or {})
        self._answers = answers or JsonAnswers()
        self._asking = asyncio.Lock()

    @override
    async def context_window(self) -> int:
        if self._window is None:
            await self._ask_about_model()
        return self._window or DEFAULT_WINDOW

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self._counter.count(texts)

    @override
    async def check(self) -> None:
        """Ask the endpoint whether it is there and has the model; nothing is generated.

        Raises:
            ModelError: it is not there, refuses the key, or has other models only.
        """
        cards = await self._client.models()
        if cards is None or (self.name and self.name not in {card.get("id") for card in cards}):
            raise ModelRejected(
                f"The endpoint does not list the model {self.name or '(any)'}.",
                hint="Check MEMSERVER_LLM_MODEL, and that MEMSERVER_LLM_BASE_URL ends in /v1.",
            )

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        """What these tools add to a prompt, as text, for counting."""
        if self._mode == "tools":
            return native_tools_json(tools)
        return tools_as_text(tools) if self._answers.list_tools else ""

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        body = await self._call_body(prompt, tools, max_tokens, streamed=on_text is not None)
        if on_text is None:
            answer = await self._client.post("/chat/completions", body)
            raw, usage = _whole(answer), usage_of(answer)
        else:
            raw, usage = await self._listen(body, on_text)
        native = self._mode == "tools" or raw.calls
        parsed = parse_native(raw, tools) if native else parse_json(raw, tools)
        return Reply(parsed.call, usage, parsed.text)

    @override
    async def write(self, prompt: Sequence[PromptMessage], *, max_tokens: int) -> Written:
        await self._know_name()
        messages = native_messages(prompt) if self._mode == "tools" else json_messages(prompt)
        fields = self._fields(messages, max_tokens)
        answer = await self._client.post("/chat/completions", joined([_dumps(fields)]))
        raw = without_reasoning(_whole(answer))
        text = clean_text(raw.content).strip()
        if not text:
            raise ProtocolViolation("The model wrote nothing.", raw=clean_text(raw.reasoning))
        return Written(text, usage_of(answer))

    @override
    async def aclose(self) -> None:
        await self._client.aclose()
        await self._counter.aclose()

    async def _call_body(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        max_tokens: int,
        *,
        streamed: bool,
    ) -> bytes:
        """The request as bytes; what the tools add is text that is cached with them."""
        await self._know_name()
        defaults: JsonObject = {}
        if streamed:
            defaults |= {"stream": True, "stream_options": {"include_usage": True}}
        if self._mode == "json_schema":
            messages = json_messages(prompt, tools if self._answers.list_tools else ())
            prepared = f'"response_format":{response_format_json(tools, self._answers.schema)}'
        else:
            messages = native_messages(prompt)
            prepared = f'"tools":{native_tools_json(tools)}'
            defaults |= {"tool_choice": _choice(tools), "parallel_tool_calls": False}
        fields = self._fields(messages, max_tokens, defaults)
        return joined([_dumps(fields)[:-1], ",", prepared, "}"])

    def _fields(
        self, messages: list[JsonObject], max_tokens: int, defaults: JsonObject | None = None
    ) -> JsonObject:
        fields = {"model": self.name, "max_tokens": max_tokens, **(defaults or {}), **self._body}
        kept = {name: value for name, value in fields.items() if value is not None}
        return {**kept, "messages": messages}

    async def _listen(self, body: bytes, on_text: TextSink) -> tuple[RawReply, Usage]:
        """Stream a reply, and tell its message's text while it comes."""
        reply = StreamedReply()
        in_content, in_arguments = CallText(_SPOKEN), ArgumentText()
        async with aclosing(self._client.stream("/chat/completions", body)) as events:
            async for event in events:
                content, arguments = reply.add(event)
                if self._mode == "json_schema":
                    text = in_content.feed(content)
                else:
                    text = in_arguments.feed(arguments) if reply.first_name == _SPOKEN else ""
                if text:
                    on_text(text)
        return reply.whole(), reply.usage

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
                self._window = _window_of(self.name, cards)


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


def _window_of(name: str, cards: list[JsonObject]) -> int:
    """The window on the model's card, or on its parent's: an adapter's card has none of its own."""
    by_name = {card.get("id"): card for card in cards}
    card = by_name.get(name, {})
    for shown in (card, by_name.get(card.get("parent"), {})):
        for key in _WINDOW_KEYS:
            window = shown.get(key)
            if isinstance(window, int) and window > 0:
                return window
    return DEFAULT_WINDOW


def _dumps(fields: JsonObject) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
