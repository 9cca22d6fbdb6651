"""A model that answers from a script, for tests and benchmarks.

Owns the steps that a script is made of; `scripted_server` serves the same steps over HTTP. Replies go
through the same `reply_parser` as a real endpoint's, so an invalid one is refused the same way. It
never waits on the clock: a step that must take its time waits for an event.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from memserver.errors import ContextOverflow, ProtocolViolation
from memserver.llm.base import ChatModel, Reply, TextSink, Written
from memserver.llm.reply_parser import RawCall, RawReply, parse_json, parse_native, parse_text
from memserver.llm.text_stream import PlainText
from memserver.llm.tool_schema import tools_as_text
from memserver.messages import Prompt, PromptMessage, TokenUsage, ToolSpec, ToolSpecs
from memserver.metering import note_reply, note_request


@dataclass(frozen=True, slots=True)
class Call:
    """A step: the model calls this tool. `text` is prose beside the call."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A step that waits: it sets `reached` when the model is asked and continues after `release`."""

    step: "Step"
    release: asyncio.Event
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Broken:
    """A step that streams its call's text, or the text that it is, and then fails instead of ending."""

    call: Call | str
    error: Exception


Step = Call | RawReply | str | Exception | Held | Broken
"""What a script says next: a call, a raw reply (a str is one in JSON mode), or an error to raise."""
Rule = Callable[[Prompt, ToolSpecs], Step]
Writer = Callable[[Prompt], Step]
"""Makes the step that answers a request for plain text; a str is that text."""


NOTHING_TO_SAVE = Call("nothing_to_save")


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that the model got."""

    prompt: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int
    streamed: bool


def say(message: str, *, thought: str | None = None, **arguments: Any) -> Call:  # noqa: ANN401 - JSON
    """A step that calls send_message."""
    before = {} if thought is None else {"inner_thought": thought}
    return Call("send_message", {**before, "message": message, **arguments})


def unless_alerted(rule: Rule, on_alert: Step | Rule = NOTHING_TO_SAVE) -> Rule:
    """The rule, except where a step is for saving under memory pressure."""

    def made(prompt: Prompt, tools: ToolSpecs) -> Step:
        if not any(tool.name == NOTHING_TO_SAVE.name for tool in tools):
            return rule(prompt, tools)
        return on_alert(prompt, tools) if callable(on_alert) else on_alert

    return made


def count_words(text: str) -> int:
    """Tokens as the scripted model counts them: one for each word."""
    return len(text.split())


def count_bytes(text: str) -> int:
    """Tokens as UTF-8 bytes."""
    return len(text.encode(errors="replace"))


class ScriptedModel(ChatModel):
    """Answers each `call_tool` with the script's next step, and each `write` with a text.

    Attributes:
        seen: every request for a tool call, in order.
        writes: the prompt of every request for plain text, in order.
    """

    def __init__(
        self,
        script: Iterable[Step] | Rule = (),
        *,
        on_alert: Step | Rule = NOTHING_TO_SAVE,
        summary: str | Writer = "They talked.",
        context_window: int = 8192,
        count: Callable[[str], int] = count_words,
        enforce_window: bool = True,
    ) -> None:
        """Make a model.

        Args:
            script: the steps in order, or a function that makes a step from the prompt and tools.
            on_alert: the step that answers a pressure alert, or what makes one; no step of the script does.
            summary: what `write` answers, or a function that makes a step from its prompt.
            context_window: what `context_window()` answers.
            count: tokens of a text.
            enforce_window: raise ContextOverflow for a prompt that is too long, as an endpoint does.
        """
        self.name = "scripted"
        self.message_overhead = 4
        self.window = context_window
        self.seen: list[Seen] = []
        self.writes: list[tuple[PromptMessage, ...]] = []
        rule = script if callable(script) else _in_order(iter(script))
        self._rule = unless_alerted(rule, on_alert)
        self._writer = summary if callable(summary) else lambda _: summary
        self._count = count
        self._enforce_window = enforce_window

    @property
    def last_prompt(self) -> tuple[PromptMessage, ...]:
        """The prompt of the latest request for a tool call."""
        return self.seen[-1].prompt

    @override
    async def context_window(self) -> int:
        return self.window

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [self._count(text) for text in texts]

    @override
    async def check(self) -> None:
        """Is always there."""

    @override
    def tools_text(self, tools: ToolSpecs) -> str:
        """What these tools add to a prompt, as text, for counting."""
        return tools_as_text(tools)

    @override
    async def call_tool(
        self, prompt: Prompt, tools: ToolSpecs, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Reply:
        self.seen.append(Seen(tuple(prompt), tuple(tools), max_tokens, on_text is not None))
        used = self._prompt_tokens(prompt, tools, max_tokens)
        note_request({"messages": prompt, "tools": tools})
        raw = await _replied(self._rule(prompt, tools), _message_of, on_text)
        note_reply(raw)
        with _costing(TokenUsage(used, self._count(raw.content))):
            parsed = parse_native(raw, tools) if raw.calls else parse_json(raw, tools)
        written = self._count(parsed.text) + self._count(json.dumps(dict(parsed.call.arguments)))
        return Reply(parsed.call, TokenUsage(used, written), parsed.text)

    @override
    async def write(
        self, prompt: Prompt, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        self.writes.append(tuple(prompt))
        used = self._prompt_tokens(prompt, (), max_tokens)
        raw = await _replied(self._writer(prompt), _text_of, on_text)
        with _costing(TokenUsage(used, self._count(raw.content))):
            text = parse_text(raw)
        return Written(text, TokenUsage(used, self._count(text)))

    @override
    async def aclose(self) -> None:
        return None

    def _prompt_tokens(self, prompt: Prompt, tools: ToolSpecs, max_tokens: int) -> int:
        used = sum(self.message_overhead + self._count(shown(message)) for message in prompt)
        used += self._count(self.tools_text(tools)) if tools else 0
        if self._enforce_window and used + max_tokens > self.window:
            raise ContextOverflow(
                f"The prompt has {used} tokens and {max_tokens} are kept for the answer, "
                f"but the window has {self.window}."
            )
        return used


@contextmanager
def _costing(usage: TokenUsage) -> Iterator[None]:
    try:
        yield
    except ProtocolViolation as violation:
        violation.usage = usage
        raise


def shown(message: PromptMessage) -> str:
    """The text of a message as its tokens are counted, an assistant's call included."""
    if message.role != "assistant" or message.call is None:
        return message.text
    arguments = json.dumps(dict(message.call.arguments), ensure_ascii=False)
    return f"{message.text} {message.call.name} {arguments}"


def as_raw(step: Call | RawReply | str) -> RawReply:
    """The reply that an endpoint would have sent for this step."""
    if isinstance(step, RawReply):
        return step
    if isinstance(step, str):
        return RawReply(content=step)
    arguments = json.dumps(dict(step.arguments), ensure_ascii=False)
    return RawReply(step.text, (RawCall(step.name, arguments),), finish_reason="tool_calls")


def fragments(text: str) -> list[str]:
    """The text in a few pieces, as it would be streamed."""
    size = max(1, -(-len(text) // 3))
    return [text[start : start + size] for start in range(0, len(text), size)]


async def due(step: Step) -> "Call | RawReply | str | Exception | Broken":
    """The step when its time has come."""
    while isinstance(step, Held):
        step.reached.set()
        await step.release.wait()
        step = step.step
    return step


_Said = Call | RawReply | str


async def _replied(
    step: Step, spoken: Callable[[_Said], str], on_text: TextSink | None
) -> RawReply:
    """The reply of a step when its time has come; what is spoken in it comes before."""
    step = await due(step)
    if isinstance(step, Exception):
        raise step
    said = step.call if isinstance(step, Broken) else step
    if on_text is not None:
        for fragment in fragments(spoken(said)):
            on_text(fragment)
            await asyncio.sleep(0)
    if isinstance(step, Broken):
        raise step.error
    return as_raw(said)


def _message_of(said: _Said) -> str:
    """What a call of send_message says."""
    message = said.arguments.get("message") if isinstance(said, Call) else None
    spoken = isinstance(said, Call) and said.name == "send_message" and isinstance(message, str)
    return str(message) if spoken else ""


def _text_of(said: _Said) -> str:
    """What a plain reply says."""
    text = PlainText()
    return text.feed(as_raw(said).content) + text.end()


def _in_order(steps: Iterator[Step]) -> Rule:
    def rule(_prompt: Prompt, _tools: ToolSpecs) -> Step:
        try:
            return next(steps)
        except StopIteration:
            raise AssertionError(
                "The scripted model was asked once more than its script says."
            ) from None

    return rule
