"""A reply that streams: the message's text while it comes, and the whole when it has ended."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from typing_extensions import override

from memserver.errors import ModelAnswerTooLarge
from memserver.llm.answers import StreamedReply
from memserver.llm.base import TextSink
from memserver.llm.profile import ToolCallMode
from memserver.llm.reply_parser import RawReply
from memserver.llm.text_stream import ArgumentText, CallText, PlainText
from memserver.llm.tool_names import is_spoken
from memserver.messages import JsonObject, ToolSpec, Usage

MOST_CHARACTERS = 4_000_000
"""Of a reply that streams."""


class Reader(Protocol):
    """Reads a message's text out of a reply that streams.

    Attributes:
        names: of the tools that were offered.
    """

    names: Sequence[str]

    def text(self, reply: StreamedReply, content: str, arguments: str) -> str: ...

    def end(self) -> str: ...


class CallReader(Reader):
    def __init__(self, mode: ToolCallMode, tools: Sequence[ToolSpec], *, holds: bool) -> None:
        """Make it. `holds`: the model has thought without opening its thoughts."""
        self.names = tuple(tool.name for tool in tools)
        self._native = mode == "tools"
        self._tools = tools
        self._in_content, self._in_arguments = CallText(tools, holds=holds), ArgumentText()
        self._held: list[str] = []
        """Arguments that came before their tool's name was known."""

    @override
    def text(self, reply: StreamedReply, content: str, arguments: str) -> str:
        if not self._native:
            return self._in_content.feed(content)
        if arguments:
            self._held.append(arguments)
        if not self._held or not is_spoken(reply.first_name, self._tools):
            return ""
        arguments, self._held = "".join(self._held), []
        return self._in_arguments.feed(arguments)

    @override
    def end(self) -> str:
        return self._in_content.end()


class PlainReader(Reader):
    def __init__(self, *, holds: bool = False) -> None:
        self.names = ()
        self._text = PlainText(holds=holds)

    @override
    def text(self, reply: StreamedReply, content: str, arguments: str) -> str:
        return self._text.feed(content)

    @override
    def end(self) -> str:
        return self._text.end()


async def listen(
    events: AsyncGenerator[JsonObject, None], reader: Reader, on_text: TextSink
) -> tuple[RawReply, Usage]:
    """Take a stream to its end, and tell the message's text while it comes."""
    reply = StreamedReply(reader.names)
    async with aclosing(events):
        async for event in events:
            if text := reader.text(reply, *reply.add(event)):
                on_text(text)
    if text := reader.end():
        on_text(text)
    raw = reply.whole()
    if raw.size > MOST_CHARACTERS:
        raise ModelAnswerTooLarge(f"The model wrote more than {MOST_CHARACTERS} characters.")
    return raw, reply.usage
