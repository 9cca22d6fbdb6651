"""The contract every model keeps. Owns no provider: those stand beside this file.

`call_tool` returns exactly one tool call that is valid against its schema, or raises a ModelError;
how the provider gets there (native tool calling, JSON-schema output, a script) is its own affair.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from typing_extensions import override

from memserver.llm.profile import ProfileReport
from memserver.messages import FunctionCall, Prompt, ProviderFields, TokenUsage, ToolSpecs

TextSink = Callable[[str], None]
"""Takes the fragments of a message's text while it is generated. Provisional until the turn commits."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One validated tool call; `text` is prose that stood beside it."""

    call: FunctionCall
    usage: TokenUsage
    text: str = ""
    fields: ProviderFields | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Plain text from a model: a summary, or a message of an agent that speaks in plain chat."""

    text: str
    usage: TokenUsage


Answer = TypeVar("Answer", Reply, Written)


class ChatModel(Protocol):
    """A model that acts by tool calls, and can write plain text.

    Attributes:
        name: what the endpoint calls the model.
        message_overhead: an upper bound of the tokens a chat template puts around one message.
    """

    name: str
    message_overhead: int

    @property
    def counts_exactly(self) -> bool:
        """Whether the latest counts are the model's own tokens, and no estimate."""
        return True

    @property
    def mode(self) -> str:
        """How it is asked for a call, for people to read; empty where there is one way only."""
        return ""

    @property
    def profile(self) -> ProfileReport | None:
        """How requests to its endpoint look, for people; None where there is no endpoint."""
        return None

    @property
    def takes_pictures(self) -> bool:
        """Whether nothing is known against its taking pictures."""
        return self.profile is None or self.profile.profile.pictures

    @property
    def fields_of(self) -> str | None:
        """The model whose provider fields a prompt of this one carries: its own name, which is empty until known.

        None where none are sent.
        """
        return None

    async def context_window(self) -> int:
        """Tokens of prompt and output together that the model can see."""
        ...

    @property
    def window_is_assumed(self) -> bool:
        """Whether nobody has said how large the window is."""
        return False

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count each text with the model's own tokenizer, or estimate it."""
        ...

    def tools_text(self, tools: ToolSpecs) -> str:
        """What these tools add to a prompt, as text, for counting and for people to read."""
        ...

    async def check(self) -> None:
        """Ask whether the endpoint answers. Raises a ModelError if it doesn't."""
        ...

    async def call_tool(
        self, prompt: Prompt, tools: ToolSpecs, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Reply:
        """Ask for the next step.

        Args:
            prompt: system message first, then the queue.
            tools: what may be called; never empty. With one tool the model must call that one.
            max_tokens: of output.
            on_text: takes the text of send_message while it is generated.

        Raises:
            ModelUnavailable: no connection, 5xx, or still loading.
            ModelTimeout: no answer in time.
            ModelRejected: the endpoint refused the request.
            ContextOverflow: the prompt is longer than the endpoint's window.
            ModelRefused: the model, or its provider's filter, refuses to answer.
            ProtocolViolation: the reply is not exactly one valid call.
        """
        ...

    async def write(
        self, prompt: Prompt, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        """Ask for plain text: white space around it goes, and it is never empty.

        A text that reached `max_tokens` is given as far as it got.

        Args:
            prompt: system message first.
            max_tokens: of output.
            on_text: takes the text while it is generated; no reasoning in front of it.

        Raises:
            ModelError: as `call_tool`; a ProtocolViolation where nothing was written.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


def _of_inner(name: str) -> Any:  # noqa: ANN401 - as the protocol has it
    return property(lambda model: getattr(model.inner, name))


class ModelDecorator(ChatModel):
    """Another model, of which a subclass changes something. That one outlives this, and is closed by its owner."""

    name = _of_inner("name")
    message_overhead = _of_inner("message_overhead")
    counts_exactly = _of_inner("counts_exactly")
    mode = _of_inner("mode")
    profile = _of_inner("profile")
    takes_pictures = _of_inner("takes_pictures")
    fields_of = _of_inner("fields_of")
    context_window = _of_inner("context_window")
    window_is_assumed = _of_inner("window_is_assumed")
    count_tokens = _of_inner("count_tokens")
    tools_text = _of_inner("tools_text")
    check = _of_inner("check")

    def __init__(self, inner: ChatModel) -> None:
        self.inner = inner

    @override
    async def call_tool(
        self, prompt: Prompt, tools: ToolSpecs, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Reply:
        return await self.around(
            lambda sink: self.inner.call_tool(prompt, tools, max_tokens=max_tokens, on_text=sink),
            on_text,
        )

    @override
    async def write(
        self, prompt: Prompt, *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        return await self.around(
            lambda sink: self.inner.write(prompt, max_tokens=max_tokens, on_text=sink), on_text
        )

    async def around(
        self, ask: Callable[[TextSink | None], Awaitable[Answer]], on_text: TextSink | None
    ) -> Answer:
        """One request of either kind, as the inner model has it."""
        return await ask(on_text)

    @override
    async def aclose(self) -> None:
        return
