"""Separates what a model thinks from what it says, where both stand in the content of its reply.

reasoning.toml has the markings. `Separator` reads fragments and gives the same for every cut; only for a thought that
nothing opened, since the chat template did, nobody can know beforehand. A marker between quotes or backticks is one that
the model speaks of. A thought that is never closed is all that there is.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Literal

from memserver.llm.coercion import read_json_at

Kind = Literal["said", "thought", "unopened"]
"""unopened: all that was said so far was a thought."""
Piece = tuple[Kind, str]

_MARKINGS = tomllib.loads(files(__package__).joinpath("reasoning.toml").read_text("utf-8"))
_ENDS, _HEADS = tuple(_MARKINGS["ends"]), tuple(_MARKINGS["heads"])
_CHANNEL = "channel"
"""Of gpt-oss: stands for a marker that opens a thought; see `_HEADER`."""
_HEADER = "header"
"""What stands between a channel's name and its text."""
_PAIRS: dict[str, tuple[str, ...]] = {
    **{
        f"<{name}>": tuple(f"</{each}>" for each in group)
        for group in _MARKINGS["tags"]
        for name in group
    },
    **{opening: tuple(closings) for opening, closings in _MARKINGS["pairs"].items()},
}
_CLOSINGS = {each for closings in _PAIRS.values() for each in closings} - {*_ENDS}
_LEADING: dict[str, tuple[str, ...]] = {
    opening: tuple(closings) for opening, closings in _MARKINGS["leading"].items()
}
_CALLS = "commentary to="
"""How a call in a channel begins whose tokens were left out."""
_DROPPED = (*_MARKINGS["dropped"], *_ENDS)
_WRAPPERS = {f"<{name}>": f"</{name}>" for name in _MARKINGS["wrappers"]}
_QUOTES = frozenset("`\"'")
_RECIPIENT = re.compile(r"\bto=\s*([\w.:/-]+)")
_PRIVATE = re.compile(r"analysis|commentary|thought", re.IGNORECASE)
_OBJECT_START = re.compile(r'\{\s*["}]')
_OBJECTS_TRIED = 16


class _Markers:
    def __init__(self, markers: Iterable[str]) -> None:
        known = sorted(markers)
        self._pattern = re.compile("|".join(map(re.escape, known)), re.IGNORECASE | re.ASCII)
        self._begun = {each[:end] for each in known for end in range(1, len(each))}
        self._firsts = {first for each in known for first in (each[0], each[0].upper())}
        self._longest = max(map(len, known)) - 1

    def find(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._pattern.search(text, start)

    def begun(self, text: str, start: int = 0) -> int:
        """Where the end of the text begins that may be a marker's beginning; its length, if none does."""
        for place in range(max(start, len(text) - self._longest), len(text)):
            if text[place] in self._firsts and text[place:].lower() in self._begun:
                return place
        return len(text)


_IN_SAID = _Markers({*_PAIRS, *_CLOSINGS, *_HEADS, *_DROPPED, *_WRAPPERS, *_WRAPPERS.values()})
_IN_THOUGHT = {
    opening: _Markers(closings)
    for opening, closings in (
        *_PAIRS.items(),
        *_LEADING.items(),
        (_CHANNEL, (*_ENDS, *_HEADS)),
        (_HEADER, (*_ENDS, *_HEADS, "<|message|>", "{")),
        ("", _CLOSINGS),
    )
}


@dataclass(frozen=True, slots=True)
class Separated:
    """A content taken apart; `unopened` says that it began with a thought that nothing opened."""

    said: str
    thought: str = ""
    unopened: bool = False


def separate(content: str, *, calls: bool = False) -> Separated:
    """Take a whole content apart. With `calls` it may hold calls as JSON text; a marker inside such an object is none."""
    if not _IN_SAID.find(content) and not content.lstrip().startswith((*_LEADING, _CALLS)):
        return Separated(content)
    separator = Separator(calls=calls)
    said: list[str] = []
    thought: list[str] = []
    for kind, text in _pieces(separator, content, calls=calls):
        if kind == "unopened":
            thought += said
            said.clear()
        else:
            (said if kind == "said" else thought).append(text)
    return Separated("".join(said), "".join(thought).strip(), separator.unopened)


def _pieces(separator: "Separator", content: str, *, calls: bool) -> Iterator[Piece]:
    position = 0
    for start in islice(_OBJECT_START.finditer(content), _OBJECTS_TRIED if calls else 0):
        if start.start() < position:
            continue
        yield from separator.feed(content[position : start.start() + 1])
        position = start.start() + 1
        if separator.is_saying:
            with suppress(ValueError):
                _, end = read_json_at(content, start.start())
                yield from separator.skip(content[position:end])
                position = end
    yield from separator.feed(content[position:])
    yield from separator.end()


class Separator:
    """Takes a content apart while it comes; `unopened` as in `Separated`."""

    def __init__(self, *, calls: bool = False) -> None:
        """Begin. With `calls` a call in a channel of gpt-oss is given as JSON text; else it counts as a thought."""
        self.unopened = False
        self._calls = calls
        self._rest = ""
        self._at = 0
        self._last = ""
        """The character before the rest."""
        self._opened = ""
        """What opened the thought, or the header, that is being read."""
        self._header = ""
        self._held: list[str] = []
        """A thought that is one only where it is closed."""
        self._is_first = True
        self._thought = False
        """Whether there was a thought, and nothing but blanks since."""
        self._any_thought = False
        self._wrapper = ""
        self._in_call = False

    @property
    def is_saying(self) -> bool:
        return not (self._opened or self._rest)

    def skip(self, text: str) -> Iterator[Piece]:
        yield from self._plain(text)
        self._last = ""

    def feed(self, fragment: str) -> Iterator[Piece]:
        self._rest += fragment
        yield from self._read(ends=False)

    def end(self) -> Iterator[Piece]:
        yield from self._read(ends=True)
        if self._opened in _LEADING:
            held = "".join(self._held)
            if held[:1].isalpha() and not held[:1].islower():
                yield "thought", held
            else:
                self._rest, self._opened = self._opened + held, ""
                yield from self._read(ends=True)
        if self._opened == _HEADER and self._header.lstrip().startswith("final"):
            yield "said", self._header.lstrip().removeprefix("final")
        if self._in_call:
            yield "said", "}"

    def _read(self, *, ends: bool) -> Iterator[Piece]:
        while self._at < len(self._rest):
            if self._is_first:
                begun = self._rest.lstrip()
                yield from self._plain(self._rest[: len(self._rest) - len(begun)])
                self._rest = begun
                if not self._begins(ends=ends):
                    break
            markers = _IN_THOUGHT[self._opened] if self._opened else _IN_SAID
            found = markers.find(self._rest, self._at)
            if found is None or not (ends or self._is_clear(found)):
                end = found.start() if found else markers.begun(self._rest, self._at)
                yield from self._plain(self._taken(len(self._rest) if ends else end))
                break
            quoted = self._is_quoted(found)
            yield from self._plain(self._taken(found.start()))
            self._at = found.end()
            if quoted:
                yield from self._plain(found[0])
            elif self._opened:
                yield from self._closed(found[0].lower())
            else:
                yield from self._marked(found[0])
        self._rest, self._at = self._rest[self._at :], 0

    def _taken(self, end: int) -> str:
        text, self._at = self._rest[self._at : end], end
        return text

    def _begins(self, *, ends: bool) -> bool:
        begun = self._rest
        if not ends and any(opening.startswith(begun) for opening in (*_LEADING, _CALLS)):
            return False
        self._is_first = False
        self._opened = next(filter(begun.startswith, _LEADING), "")
        self._at = len(self._opened)
        if begun.startswith(_CALLS):
            self._opened, self._header = _HEADER, ""
        return True

    def _is_clear(self, found: re.Match[str]) -> bool:
        return (
            found.end() < len(self._rest)
            or self._before(found) not in _QUOTES
            or bool(self._opened)
        )

    def _is_quoted(self, found: re.Match[str]) -> bool:
        before = self._before(found)
        return not self._opened and before in _QUOTES and self._rest.startswith(before, found.end())

    def _before(self, found: re.Match[str]) -> str:
        return self._rest[found.start() - 1] if found.start() > self._at else self._last

    def _plain(self, text: str) -> Iterator[Piece]:
        if not text:
            return
        self._last = text[-1]
        if not self._opened:
            self._thought = self._thought and text.isspace()
            yield "said", text
        elif self._opened == _HEADER:
            self._header += text
        elif self._opened in _LEADING:
            self._held.append(text)
        else:
            yield "thought", text

    def _marked(self, written: str) -> Iterator[Piece]:
        marker = written.lower()
        if marker in _WRAPPERS and self._thought:
            self._wrapper = _WRAPPERS[marker]
        elif marker in _CLOSINGS:
            self.unopened = self.unopened or not self._any_thought
            self._thought = self._any_thought = True
            yield "unopened", ""
        elif marker in _PAIRS:
            self._opened, self._any_thought = marker, True
        elif marker in _HEADS or marker in _DROPPED:
            if self._in_call:
                yield "said", "}"
            self._in_call = False
            self._opened, self._header = _HEADER if marker in _HEADS else "", ""
        elif marker != self._wrapper:
            yield from self._plain(written)

    def _closed(self, marker: str) -> Iterator[Piece]:
        opened, self._opened = self._opened, ""
        self._thought = self._any_thought = True
        if marker in _HEADS or marker == "assistantcommentary":
            self._opened, self._header = _HEADER, marker
        if opened in _LEADING:
            yield "thought", "".join(self._held)
        elif opened == _HEADER and marker in {"<|message|>", "{"}:
            self._at -= marker == "{"  # which is the text's
            yield from self._spoken_in(self._header)
        elif opened == _HEADER and marker in _ENDS:
            yield "thought", self._header

    def _spoken_in(self, header: str) -> Iterator[Piece]:
        recipient = _RECIPIENT.search(header)
        if recipient is not None and self._calls:
            self._in_call = True
            yield "said", f'{{"tool": {json.dumps(recipient[1])}, "arguments": '
        elif recipient is not None or _PRIVATE.search(header):
            self._opened = _CHANNEL


class UnopenedThoughts:
    """Holds a content of a model back whose thoughts nothing opens, until one has ended."""

    def __init__(self, *, holds: bool, calls: bool = False) -> None:
        self._parts: list[str] | None = [] if holds else None
        self._calls = calls
        self._newest = ""

    def feed(self, fragment: str) -> str:
        if self._parts is None:
            return fragment
        self._parts.append(fragment)
        newest = self._newest + fragment
        self._newest = newest[_IN_THOUGHT[""].begun(newest) :]
        if _IN_THOUGHT[""].find(newest) is None:
            return ""
        return self.end()

    def end(self) -> str:
        content, self._parts = "".join(self._parts or ()), None
        closing = _IN_THOUGHT[""].find(content)
        if closing is None:
            return content
        thought = separate(content[: closing.end()], calls=self._calls)
        return content[closing.end() :] if thought.unopened else content
