"""One tool call out of its pieces, as the many servers cut them.

A piece is known to be more of a call by its index where that says something, else by its id, its name, and whether the
arguments so far are whole.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memserver.llm.provider_fields import call_fields, join_pieces
from memserver.llm.reply_parser import RawCall
from memserver.messages import JsonObject

_STRUCTURE = re.compile(r'["\\{}\[\]]')
_dumps = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Piece:
    index: int | None
    id: str
    name: str
    arguments: str
    fields: JsonObject

    @classmethod
    def of(cls, call: Mapping[str, Any]) -> "Piece":
        function = call.get("function")
        said = function if isinstance(function, dict) else {}
        brought = said.get("arguments")
        return cls(
            _index(call.get("index")),
            _string(call.get("id")),
            _string(said.get("name")),
            brought if isinstance(brought, str) else _dumps(brought) if brought else "",
            call_fields(call),
        )

    @property
    def begins(self) -> bool:
        return self.arguments.lstrip()[:1] in ("{", '"')


@dataclass(slots=True)
class StreamedCall:
    """A call as far as it has come.

    Attributes:
        names: of the tools that were offered.
        next_name: its name where that came once more after whole arguments: it may be the next call's.
        next_id: another id that came alone after whole arguments.
    """

    index: int
    names: frozenset[str]
    name: str = ""
    id: str = ""
    next_name: str = ""
    next_id: str = ""
    _arguments: list[str] = field(default_factory=list)
    _fields: list[JsonObject] = field(default_factory=list)
    _extent: "_Extent" = field(default_factory=lambda: _Extent())

    def is_followed_by(self, piece: Piece) -> bool:
        """Whether a piece that could be more of this call begins another one."""
        name = _with_more(self.name, piece.name, self.names)
        if name is None:
            return True
        if not self._extent.is_whole:
            return False  # whatever its id: some give each piece another one
        if piece.begins:
            return bool(piece.name) or not piece.id or piece.id != self.id
        if self.name not in self.names and any(each.startswith(name) for each in self.names):
            return False  # its name isn't whole yet
        other_id = bool(piece.id and self.id and piece.id != self.id)
        return name != self.name or (other_id and bool(piece.arguments.strip()))

    def add(self, piece: Piece) -> None:
        if self._extent.is_whole:
            self.next_name = (self.name and piece.name) or self.next_name
            self.next_id = piece.id if piece.id not in ("", self.id) and self.id else self.next_id
        self.id = self.id or piece.id
        self.name = _with_more(self.name, piece.name, self.names) or self.name
        self._arguments.append(piece.arguments)
        self._extent.feed(piece.arguments)
        if piece.fields:
            self._fields.append(piece.fields)

    def followed_by(self, piece: Piece) -> "StreamedCall":
        if piece.index not in (None, self.index):
            return StreamedCall(piece.index, self.names)
        name = "" if piece.name else self.next_name
        return StreamedCall(self.index, self.names, name, "" if piece.id else self.next_id)

    def whole(self) -> RawCall:
        return RawCall(self.name, "".join(self._arguments), self.id, join_pieces(self._fields))


@dataclass(slots=True)
class _Extent:
    """Whether a JSON value that comes in pieces is whole."""

    is_whole: bool = False
    _depth: int = 0
    _in_text: bool = False
    _escapes: bool = False

    def feed(self, text: str) -> None:
        if self.is_whole or not text:
            return
        escaped = 0 if self._escapes else -1
        for found in _STRUCTURE.finditer(text):
            place, mark = found.start(), found[0]
            if place == escaped:
                continue
            if mark == "\\":
                escaped = place + 1 if self._in_text else -1
            elif mark == '"':
                self._in_text = not self._in_text
            elif not self._in_text:
                self._depth += 1 if mark in "{[" else -1
            if mark != "\\" and not self._in_text and self._depth <= 0:
                self.is_whole = True
                return
        self._escapes = escaped == len(text)


def _with_more(known: str, more: str, names: frozenset[str]) -> str | None:
    """A name with what came next: more of it, or all of it again; None where that is another one."""
    together = known + more
    if not known or not more:
        return together
    if more == known and (known in names or together not in names):
        return known
    if known in names and more in names:
        return None
    grown = more in names and more.startswith(known)
    return more if grown and not any(name.startswith(together) for name in names) else together


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
