"""A reply that streams: the message's text while it comes, and the whole when it has ended."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from memserver.errors import ModelAnswerTooLarge
from memserver.llm.answers import StreamedReply
from memserver.llm.base import TextSink
from memserver.llm.profile import ToolCallMode
from memserver.llm.reply_parser import RawReply
from memserver.llm.text_stream import ArgumentText, CallText, PlainText
from memserver.llm.tool_names import is_spoken
from memserver.messages import JsonObject, TokenUsage, ToolSpecs

MOST_CHARACTERS = 4_000_000
"""Of a reply that streams."""


class CallReader:
    def __init__(self, mode: ToolCallMode, tools: ToolSpecs, *, holds: bool) -> None:
        self.names = tuple(tool.name for tool in tools)
        self._native = mode == "tools"
        self._tools = tools
        self._in_content, self._in_arguments = CallText(tools, holds=holds), ArgumentText()
        self._held: list[str] = []
        """Arguments that came before their tool's name was known."""

    def text(self, reply: StreamedReply, content: str, arguments: str) -> str:
        """What of the message an event brought."""
        if not self._native:
            return self._in_content.feed(content)
        if arguments:
            self._held.append(arguments)
        if not self._held or not is_spoken(reply.first_name, self._tools):
            return ""
        arguments, self._held = "".join(self._held), []
        return self._in_arguments.feed(arguments)

    def end(self) -> str:
        return self._in_content.end()


class PlainReader:
    def __init__(self, *, holds: bool = False) -> None:
        self.names = tuple[str, ...]()
        self._text = PlainText(holds=holds)

    def text(self, _reply: StreamedReply, content: str, _arguments: str) -> str:
        return self._text.feed(content)

    def end(self) -> str:
        return self._text.end()


Reader = CallReader | PlainReader
"""Reads a message's text out of a reply that streams."""


async def listen(
    events: AsyncGenerator[JsonObject, None], reader: Reader, on_text: TextSink
) -> tuple[RawReply, TokenUsage]:
    """Take a stream to its end, and report the message's text while it comes."""
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
