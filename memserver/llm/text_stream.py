"""Finds the text of a message in what is still being generated, JSON or plain text.

It never raises: from broken JSON it yields what it could read. What it yields, joined, is the text as `reply_parser`
will give it, for any cut into fragments.
"""

import re
from collections.abc import Iterable, Iterator

from memserver.llm.reasoning import Kind, Separator, UnopenedThoughts
from memserver.llm.tool_names import is_spoken
from memserver.messages import ToolSpecs
from memserver.text import clean

_IN_STRING = re.compile(r'[^"\\]+|"|\\u.{4}|\\[^u]', re.DOTALL)
"""Plain text, the end of the string, or an escape."""
_PARTS = re.compile(r'[^"}]*["}]|[^"}]+')
"""Of a content that may hold objects: each part ends where one may begin or end."""
_MESSAGES = {("arguments", "message"), ("parameters", "message")}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

Path = tuple[str, ...]
Piece = tuple[Path, str, bool]
"""A string value's path, more of its text, and whether it ends here."""


class JsonStrings:
    """Reads JSON text by fragments, and gives the strings in it as they come.

    Before the first object, and between one and the next, anything is skipped.
    """

    def __init__(self) -> None:
        self._keys: list[str | None] = []
        """The key being read at each open object; None at an open list."""
        self._in_string = False
        self._is_key = False
        self._expects_key = False
        self._key = ""
        self._opening = ""
        self._rest = ""
        """The beginning of an escape."""
        self._high = ""

    @property
    def is_inside(self) -> bool:
        return bool(self._keys)

    def feed(self, fragment: str) -> Iterator[Piece]:
        """Read on; the path of a piece has only the keys of objects, and nothing inside lists."""
        text, place = self._rest + fragment, 0
        while place < len(text):
            if not self._in_string:
                self._structure(text[place])
                place += 1
                continue
            found = _IN_STRING.match(text, place)
            if found is None:
                break
            place = found.end()
            self._in_string = found[0] != '"'
            yield from self._more(_unescape(found[0]), ends=not self._in_string)
        self._rest = text[place:]

    def _structure(self, character: str) -> None:
        if not self._keys:
            self._outside(character)
        elif character == '"':
            self._in_string = True
            self._is_key = self._expects_key
            self._key = ""
        elif character in "{[":
            self._open(character)
        elif character in "}]":
            self._keys.pop()
            self._expects_key = False
        elif character == ",":
            self._expects_key = self._keys[-1] is not None

    def _outside(self, character: str) -> None:
        """An object starts with a brace and then a quote; a brace in prose does not."""
        if character == "{":
            self._opening = "{"
        elif self._opening and character == '"':
            self._open("{")
            self._structure(character)
        elif not character.isspace():
            self._opening = ""

    def _open(self, character: str) -> None:
        self._keys.append("" if character == "{" else None)
        self._expects_key = character == "{"
        self._opening = ""

    def _more(self, text: str, *, ends: bool) -> Iterator[Piece]:
        """Text of the string being read. Half of a surrogate pair waits for the other half."""
        text = self._high + text
        self._high = ""
        if not ends and text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        text = clean(text)
        if self._is_key:
            self._key += text
            if ends:
                self._keys[-1] = self._key
                self._expects_key = False
        elif None not in self._keys and (text or ends):
            yield tuple(key for key in self._keys if key is not None), text, ends


class ArgumentText:
    """The message of native arguments: `{"inner_thought": …, "message": "…"}`."""

    def __init__(self) -> None:
        self._strings = JsonStrings()
        self._done = False

    def feed(self, fragment: str) -> str:
        if self._done:
            return ""
        texts = []
        for path, text, ends in self._strings.feed(fragment):
            if path == ("message",) and not self._done:
                texts.append(text)
                self._done = ends
        return "".join(texts)


class PlainText:
    """Plain text as `parse_text` will give it: without reasoning, and without white space around it."""

    def __init__(self, *, holds: bool = False) -> None:
        self._content = UnopenedThoughts(holds=holds)
        self._separator = Separator()
        self._begun = False
        self._held = ""
        """What shows only by what follows: white space, and half of a surrogate pair."""

    def feed(self, fragment: str) -> str:
        text = self._more(self._separator.feed(self._content.feed(fragment)))
        end = len(text.rstrip())
        if end == len(text) and text and "\ud800" <= text[-1] <= "\udbff":
            end -= 1
        text, self._held = text[:end], text[end:]
        self._begun = self._begun or bool(text)
        return clean(text)

    def end(self) -> str:
        rest = [*self._separator.feed(self._content.end()), *self._separator.end()]
        return clean(self._more(rest).rstrip())

    def _more(self, pieces: Iterable[tuple[Kind, str]]) -> str:
        text = self._held + _said(pieces).replace("\x00", "")
        return text if self._begun else text.lstrip()


class CallText:
    """The text of send_message, from `{"tool": name, "arguments": {"message": "…"}}`.

    For another tool it gives nothing. Where the arguments stand before the name, their text is held
    until the name is known. The first call counts, as in `reply_parser`.
    """

    def __init__(self, tools: ToolSpecs = (), *, holds: bool = False) -> None:
        self._tools = tools
        self._content = UnopenedThoughts(holds=holds, calls=True)
        self._separator = Separator(calls=True)
        self._strings = JsonStrings()
        self._name = ""
        self._named = False
        self._is_meant = False
        self._held: list[str] = []
        self._over = False
        self._done = False

    def feed(self, fragment: str) -> str:
        return self._read(self._content.feed(fragment))

    def end(self) -> str:
        return self._read(self._content.end())

    def _read(self, content: str) -> str:
        if self._done:
            return ""
        for part in _PARTS.findall(content):
            self._read_part(part)
        if not self._named:
            return ""
        held, self._held = "".join(self._held), []
        self._done = self._over or not self._is_meant
        return held if self._is_meant else ""

    def _read_part(self, part: str) -> None:
        """Inside an object nothing is reasoning, whatever it looks like."""
        if not self._strings.is_inside:
            part = _said(self._separator.feed(part))
        for path, text, ends in self._strings.feed(part):
            self._take(path, text, ends)

    def _take(self, path: Path, text: str, ends: bool) -> None:
        if path in {("tool",), ("name",)} and not self._named:
            self._name += text
            self._named = ends
            self._is_meant = ends and is_spoken(self._name, self._tools)
        elif path in _MESSAGES and not self._over:
            self._held.append(text)
            self._over = ends


def _said(pieces: Iterable[tuple[Kind, str]]) -> str:
    return "".join(text for kind, text in pieces if kind == "said")


def _unescape(written: str) -> str:
    if written[0] != "\\":
        return written.removeprefix('"')
    if written[1] != "u":
        return _ESCAPES.get(written[1], written[1])
    try:
        return chr(int(written[2:], 16))
    except ValueError:
        return ""
