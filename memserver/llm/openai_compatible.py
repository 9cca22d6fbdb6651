"""A model behind any OpenAI-compatible endpoint, vLLM first.

What a reply becomes: a call, a text, or the error that it is none; and whether the endpoint is ready. All modes give
the same value.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from typing_extensions import override

from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelNotFound,
    ModelRefused,
    ProtocolViolation,
)
from memserver.llm.base import ChatModel, Reply, TextSink, Written
from memserver.llm.bounded_validator import run_bounded
from memserver.llm.chat_client import ChatClient
from memserver.llm.control_tokens import escape_control_tokens
from memserver.llm.listening import CallReader, PlainReader
from memserver.llm.model_facts import ModelFacts
from memserver.llm.profile import ProfileReport, ToolCallMode, overridden, profile_of
from memserver.llm.profile_keeper import Clock, ProfileKeeper
from memserver.llm.provider_fields import provider_fields
from memserver.llm.reasoning import separate
from memserver.llm.reply_parser import ParsedReply, RawReply, parse_json, parse_native, parse_text
from memserver.llm.requests import JsonAnswers, Requests
from memserver.llm.tokens import Estimated, TokenCounter
from memserver.llm.tool_schema import native_tools_text, tools_as_text
from memserver.messages import Prompt, PromptMessage, TokenUsage, ToolSpecs
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.fleet import Fleet
from memserver.openai_http.fleet_client import connect

Mode = Literal["auto"] | ToolCallMode
_FRESH_SECONDS, _FAILED_SECONDS = 60.0, 5.0
"""How long a call that worked shows that the endpoint is ready; and one that failed, that it isn't."""
_FEW_TOKENS = 16
_GREETING = (PromptMessage("user", "Say OK."),)
_RAISE_THE_LIMIT = "Raise MEMSERVER_LLM_MAX_OUTPUT_TOKENS, or the agent's max_output_tokens."

_ASK_OTHERWISE = (
    "Ask in other words, give the agent another model, or change the filter at the provider."
)
_SHOWN = 500

_Parsed = TypeVar("_Parsed", ParsedReply, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How one model of an endpoint is used.

    Attributes:
        model: what the endpoint calls it; None takes the first that the endpoint lists.
        mode: auto asks the endpoint at the first use, and keeps to what it took.
        context_window: tokens; None takes what the endpoint says, else 8192.
        window_is_limit: the endpoint is asked in any case, and the smaller window holds.
        body: more for the body of every request (temperature, seed, chat_template_kwargs, …); a None takes a field away.
        answers: how the mode json_schema asks.
        seed: each request has one of its own, made of this and of its messages; not where `body` has one.
        profile: fields of the profile that are known; refusals don't change them.
    """

    model: str | None = None
    mode: Mode = "auto"
    context_window: int | None = None
    window_is_limit: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    answers: JsonAnswers = field(default_factory=JsonAnswers)
    seed: int | None = None
    profile: Mapping[str, Any] = field(default_factory=dict)


class OpenAICompatible(ChatModel):
    """Asks an endpoint's chat completions for one tool call at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: ModelOptions | None = None,
        *,
        counter: TokenCounter | None = None,
        circuit: Circuit | Fleet | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Make it; nothing is asked yet.

        `counter` counts tokens, and is closed with the model; None estimates them. `circuit` is the endpoint's, shared by all
        its models; None asks it always. By `clock`, seconds that only grow, is judged what is to be found out again.

        Raises:
            SetupError: the options' profile names what there is not.
        """
        options = options or ModelOptions()
        self.message_overhead = 16
        given = {**options.profile, **({} if options.mode == "auto" else {"mode": options.mode})}
        self._keeper = ProfileKeeper(profile_of(given), overridden(given, options.body), clock)
        seed = None if "seed" in options.body else options.seed
        self._requests = Requests(dict(options.body), options.answers, seed)
        self._client = connect(endpoint, circuit)
        self._facts = ModelFacts(
            self._client,
            circuit or Circuit(),
            options.model or "",
            given_window=options.context_window,
            window_is_limit=options.window_is_limit,
            clock=clock,
        )
        self._counter = counter or Estimated()
        self._chat = ChatClient(self._client, self._requests, self._facts, self._keeper, clock)
        self._clock = clock
        self._thinks_unopened = False
        self._failure: ModelError | None = None
        self._failed_at = float("-inf")
        self._checking = asyncio.Lock()

    @property
    @override
    def name(self) -> str:  # type: ignore[override] # the endpoint may say it later
        return self._facts.name

    @property
    @override
    def counts_exactly(self) -> bool:
        return self._counter.is_exact

    @property
    @override
    def mode(self) -> str:
        """How the model is asked; auto until the endpoint showed what it takes."""
        return "auto" if self._keeper.is_open else self._keeper.profile.mode

    @property
    @override
    def fields_of(self) -> str | None:
        profile = self._keeper.profile
        sent = profile.returned_fields == "sent"
        return self.name if sent and (self._keeper.is_open or profile.mode == "tools") else None

    @property
    @override
    def profile(self) -> ProfileReport:
        return self._keeper.report()

    @override
    async def context_window(self) -> int:
        return await self._facts.window()

    @property
    @override
    def window_is_assumed(self) -> bool:
        return self._facts.window_is_assumed

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self._counter.count([escape_control_tokens(text) for text in texts])

    @override
    async def check(self) -> None:
        """Find out whether the endpoint answers: a call that worked, its list, or else a request of few tokens says it.

        Raises:
            ModelError: it is not there, or refuses the key or the model.
        """
        async with self._checking:
            now = self._clock()
            if now - self._chat.worked_at < _FRESH_SECONDS or await self._facts.is_listed():
                return
            if self._failure is not None and now - self._failed_at < _FAILED_SECONDS:
                raise self._failure
            try:
                async with self._explaining():
                    await self._facts.know_name()
                    await self._chat.send(
                        lambda profile: self._requests.text(self.name, profile, _GREETING),
                        _FEW_TOKENS,
                    )
            except ModelError as error:
                self._failure, self._failed_at = error, self._clock()
                raise

    @override
    def tools_text(self, tools: ToolSpecs) -> str:
        """What these tools add to a prompt, as text, for counting; the longer one while that is open."""
        if self._keeper.is_open:
            texts = native_tools_text(tools), tools_as_text(tools)
            return max(texts, key=lambda text: len(text.encode(errors="replace")))
        profile = self._keeper.profile
        if profile.mode == "tools":
            return native_tools_text(tools)
        listed = self._requests.listed(profile, tools)
        return tools_as_text(listed) if listed else ""

    @override
    async def call_tool(
        self, prompt: Prompt, tools: ToolSpecs, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Reply:
        try:
            async with self._explaining():
                await self._facts.know_name()
                await self._chat.know_mode(max_tokens)
                raw, usage, mode = await self._chat.send(
                    lambda profile: self._requests.call(self.name, profile, prompt, tools),
                    max_tokens,
                    lambda mode: CallReader(mode, tools, holds=self._thinks_unopened),
                    on_text,
                )
            self._note_thinking(raw)
            parse = parse_native if mode == "tools" or raw.calls else parse_json
            parsed = await _parse(raw, usage, partial(parse, raw, tools))
        except ProtocolViolation:
            self._keeper.record_violation()
            raise
        self._keeper.record_success()
        fields = provider_fields(self.name, raw, parsed.call.id) if mode == "tools" else None
        return Reply(parsed.call, usage, parsed.text, fields)

    @override
    async def write(
        self, prompt: Prompt, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        async with self._explaining():
            await self._facts.know_name()
            if any(message.call is not None for message in prompt):
                await self._chat.know_mode(max_tokens)
            raw, usage, _ = await self._chat.send(
                lambda profile: self._requests.text(self.name, profile, prompt),
                max_tokens,
                lambda _: PlainReader(holds=self._thinks_unopened),
                on_text,
            )
        self._note_thinking(raw)
        if raw.finish_reason == "content_filter":
            raise _refusal(raw, usage)
        return Written(await _parse(raw, usage, partial(parse_text, raw)), usage)

    @override
    async def aclose(self) -> None:
        await self._client.aclose()
        await self._counter.aclose()

    def _note_thinking(self, raw: RawReply) -> None:
        """From a thought on that nothing opened, text is held back until the next one has ended."""
        self._thinks_unopened = self._thinks_unopened or separate(raw.content, calls=True).unopened

    @asynccontextmanager
    async def _explaining(self) -> AsyncIterator[None]:
        try:
            yield
        except ContextOverflow as error:
            self._facts.learn_window(error.window)
            raise
        except ModelNotFound as error:
            self._facts.forget_window()
            self._keeper.forget()
            raise await self._facts.not_found(error) from error


async def _parse(raw: RawReply, usage: TokenUsage, parse: Callable[[], _Parsed]) -> _Parsed:
    """What a reply says.

    Raises:
        ModelRefused: it says that there won't be an answer.
        ProtocolViolation: it is none; what it cost is in it.
    """
    try:
        return await run_bounded(parse, raw.size)
    except ProtocolViolation as violation:
        violation.usage = usage
        if raw.refusal or raw.finish_reason == "content_filter":
            raise _refusal(raw, usage) from violation
        if raw.finish_reason == "length":
            violation.hint = violation.hint or _RAISE_THE_LIMIT
        raise


def _refusal(raw: RawReply, usage: TokenUsage) -> ModelRefused:
    words = " ".join((raw.refusal or raw.content).split())[:_SHOWN]
    before = f" It had said: {words}" if words else ""
    message = f"The provider's content filter stopped the answer.{before}"
    if raw.refusal:
        message = f"The model refuses to answer: {words}"
    error = ModelRefused(message, hint=_ASK_OTHERWISE)
    error.usage = usage
    return error
