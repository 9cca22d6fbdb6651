"""Finds the text of a message in what is still being generated, JSON or plain text.

Owns the incremental reading; what it yields is provisional, and the whole reply is parsed again by
`reply_parser` when it is complete. It never raises: from broken JSON it yields what it could read.
What it yields, joined, is the text as the parser will give it, for any cut into fragments.
"""

import re
from collections.abc import Iterator

from memserver.llm.lossless import clean_text

_PLAIN = re.compile(r'[^"\\]+')
_THINK, _THINK_END = "<think>", "</think>"
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
        self._escape = ""
        self._high = ""
        self._key = ""
        self._opening = ""

    def feed(self, fragment: str) -> Iterator[Piece]:
        """Read on; the path of a piece has only the keys of objects, and nothing inside lists."""
        position = 0
        while position < len(fragment):
            if self._in_string and not self._escape:
                plain = _PLAIN.match(fragment, position)
                if plain is not None:
                    position = plain.end()
                    yield from self._more(plain[0], ends=False)
                    continue
            character = fragment[position]
            position += 1
            if self._in_string:
                yield from self._string_character(character)
            else:
                self._structure(character)

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

    def _string_character(self, character: str) -> Iterator[Piece]:
        if self._escape:
            self._escape += character
            yield from self._escaped()
        elif character == "\\":
            self._escape = character
        else:
            self._in_string = False
            yield from self._more("", ends=True)

    def _escaped(self) -> Iterator[Piece]:
        kind = self._escape[1]
        if kind != "u":
            self._escape = ""
            yield from self._more(_ESCAPES.get(kind, kind), ends=False)
        elif len(self._escape) == 6:
            digits, self._escape = self._escape[2:], ""
            try:
                yield from self._more(chr(int(digits, 16)), ends=False)
            except ValueError:
                return

    def _more(self, text: str, *, ends: bool) -> Iterator[Piece]:
        """Text of the string being read. Half of a surrogate pair waits for the other half."""
        text = self._high + text
        self._high = ""
        if not ends and text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        text = clean_text(text)
        if self._is_key:
            self._key += text
            if ends:
                self._keys[-1] = self._key
                self._expects_key = False
        elif None not in self._keys and (text or ends):
            yield tuple(key for key in self._keys if key is not None), text, ends


class ArgumentText:
    """The text of one argument, from native arguments: `{"inner_thought": …, "message": "…"}`."""

    def __init__(self, argument: str = "message") -> None:
        self._path = (argument,)
        self._strings = JsonStrings()
        self._done = False

    def feed(self, fragment: str) -> str:
        """Read on, and give what of the text this fragment brought."""
        if self._done:
            return ""
        texts = []
        for path, text, ends in self._strings.feed(fragment):
            if path == self._path and not self._done:
                texts.append(text)
                self._done = ends
        return "".join(texts)


class AfterReasoning:
    """Lets through what stands behind a leading <think>…</think>; all, where there is none."""

    def __init__(self) -> None:
        self._held = ""
        self._thinks = False
        self._speaks = False

    def feed(self, fragment: str) -> str:
        """Read on, and give what of the content this fragment brought."""
        if self._speaks:
            return fragment
        self._held += fragment
        if not self._thinks:
            begun = self._held.lstrip()
            self._thinks = begun.startswith(_THINK)
            self._speaks = not self._thinks and not _THINK.startswith(begun)
        if self._thinks:
            _, end, said = self._held.partition(_THINK_END)
            self._speaks = bool(end)
            self._held = said if end else self._held[-len(_THINK_END) :]
        return self._held if self._speaks else ""

    def end(self) -> str:
        """What of the content is known to be no reasoning only now that nothing follows."""
        return "" if self._thinks or self._speaks else self._held


class PlainText:
    """Plain text as `parse_text` will give it: without reasoning, and without white space around it."""

    def __init__(self) -> None:
        self._said = AfterReasoning()
        self._begun = False
        self._held = ""
        """What shows only by what follows: white space, and half of a surrogate pair."""

    def feed(self, fragment: str) -> str:
        """Read on, and give what of the text this fragment brought."""
        text = self._more(self._said.feed(fragment))
        end = len(text.rstrip())
        if end == len(text) and text and "\ud800" <= text[-1] <= "\udbff":
            end -= 1
        text, self._held = text[:end], text[end:]
        self._begun = self._begun or bool(text)
        return clean_text(text)

    def end(self) -> str:
        """What of the text is known only now that nothing follows."""
        return clean_text(self._more(self._said.end()).rstrip())

    def _more(self, fragment: str) -> str:
        text = self._held + fragment.replace("\x00", "")
        return text if self._begun else text.lstrip()


class CallText:
    """The text of one argument of one tool, from `{"tool": name, "arguments": {"message": "…"}}`.

    For another tool it gives nothing. Where the arguments stand before the name, their text is held
    until the name is known. The first call counts, as in `reply_parser`.
    """

    def __init__(self, tool: str = "send_message", argument: str = "message") -> None:
        self._tool = tool
        self._paths = {("arguments", argument), ("parameters", argument)}
        self._said = AfterReasoning()
        self._strings = JsonStrings()
        self._name = ""
        self._named = False
        self._held: list[str] = []
        self._over = False
        self._done = False

    def feed(self, fragment: str) -> str:
        """Read on, and give what of the text this fragment brought."""
        if self._done:
            return ""
        for path, text, ends in self._strings.feed(self._said.feed(fragment)):
            self._take(path, text, ends)
        if not self._named:
            return ""
        held, self._held = "".join(self._held), []
        self._done = self._over or self._name != self._tool
        return held if self._name == self._tool else ""

    def _take(self, path: Path, text: str, ends: bool) -> None:
        if path in {("tool",), ("name",)} and not self._named:
            self._name += text
            self._named = ends
        elif path in self._paths and not self._over:
            self._held.append(text)
            self._over = ends
