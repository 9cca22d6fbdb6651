"""Builds a document's text from parts: texts with sentences, tables row by row, and documents within it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from memserver.errors import DocumentTooLarge
from memserver.memory.parsing.base import LONGEST_TEXT, MOST_SECTIONS, Parsed, TextSection, plain
from memserver.memory.parsing.sentences import sentences

_LONG_ROW = 600  # characters; in a longer one the cells are what is not cut
_LONGEST_NAME = 200  # characters of a column's name
_NUMBER = re.compile(r"[\s\d.,:/+\-%€$£()]*\d[\s\d.,:/+\-%€$£()TZ]*")
_YEAR = re.compile(r"(?:19|20)\d\d")
_HEADER_WITHIN = 10  # rows
_MOSTLY = 0.6  # of the columns have names
_BETWEEN = " | "


@dataclass(slots=True)
class TextBuilder:
    """The text so far, with its sections and the starts of what is not cut in it."""

    language: str = "en"
    warnings: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    pages: int | None = None
    _parts: list[str] = field(default_factory=list)
    _sections: list[TextSection] = field(default_factory=list)
    _units: list[int] = field(default_factory=list)
    _at: int = 0
    _in_rows: bool = False

    def add(self, text: str, **place: Any) -> None:  # noqa: ANN401 - fields of a section
        """Add a text as a section of its own; `place` is the section's page, heading and so on."""
        text = plain(text).strip("\n")
        if not text.strip():
            return
        self._in_rows = False
        self._open(**place)
        self._units += [self._at + start for start in sentences(text, self.language)] or [self._at]
        self._append(text, "\n\n")

    def add_document(self, parsed: Parsed, heading: str = "", page: int | None = None) -> None:
        """Add what was read of a part, with its own sections below this heading."""
        at = self._at
        self._in_rows = False
        if parsed.text.strip():
            self._open(heading=heading, page=page)
            self._sections += [
                replace(
                    section,
                    start=section.start + at,
                    heading=" > ".join(filter(None, (heading, section.heading))),
                    page=page if section.page is None else section.page,
                    header=section.header and (section.header[0] + at, section.header[1] + at),
                )
                for section in parsed.sections
            ]
            starts = parsed.sentences or sentences(parsed.text, self.language)
            self._units += [start + at for start in starts]
            self._append(parsed.text, "\n\n")
        self.warnings += [f"{heading}: {each}" if heading else each for each in parsed.warnings]

    def add_rows(self, rows: Sequence[Sequence[str]], heading: str = "") -> None:
        """Add a table: each row a line that names the column of each of its cells."""
        rows = [[plain(cell).strip() for cell in row] for row in rows]
        names, first = _find_names(rows)
        only = not any(map(any, rows[first:]))
        self._in_rows = False
        for number, row in enumerate(rows, start=1):
            if number != first or only:  # the names stand in all other rows
                above = names if number > first else ()
                cells = zip_longest(above, row, fillvalue="")
                self.add_row(cells, heading=heading, row=number)
        self._append("", "\n")

    def add_row(self, cells: Iterable[tuple[str, str]], **place: Any) -> None:  # noqa: ANN401
        """Add one line of cells with their columns' names."""
        named = ((name, " ".join(cell.split())) for name, cell in cells)
        shown = [f"{name}: {cell}" if name else cell for name, cell in named if cell]
        if not shown:
            return
        is_long = sum(map(len, shown)) > _LONG_ROW
        self._open(**place, border=is_long or not self._in_rows)
        self._in_rows = not is_long
        at = self._at
        for cell in shown if is_long else shown[:1]:
            self._units.append(at)
            at += len(cell) + len(_BETWEEN)
        self._append(_BETWEEN.join(shown), "\n")

    def build(self) -> Parsed:
        text = "".join(self._parts).rstrip("\n")
        return Parsed(text, self._sections, self._units, self.pages, self.warnings, self.metadata)

    def _open(self, **place: Any) -> None:  # noqa: ANN401
        self._sections.append(TextSection(self._at, **place))
        if len(self._sections) > MOST_SECTIONS or self._at > LONGEST_TEXT:
            raise DocumentTooLarge(
                f"The file has more than {MOST_SECTIONS} records, rows and headings, or {LONGEST_TEXT} characters.",
                hint="Send it in parts.",
            )

    def _append(self, text: str, end: str) -> None:
        self._parts.append(text + end)
        self._at += len(text) + len(end)


def _find_names(rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], int]:
    """The names of a table's columns, and the number of their row; 0 if it has none.

    They are all there, each once, and no values; what stands above is a title.
    """
    head = [[cell for cell in row if cell] for row in rows[:_HEADER_WITHIN]]
    width = max(map(len, head), default=0)
    for number, filled in enumerate(head, start=1):
        below = rows[number] if number < len(rows) else ()
        if width < 2 or len(filled) < 2 or len(filled) < width * _MOSTLY:
            continue
        if len(set(filled)) < len(filled) or any(len(cell) > _LONGEST_NAME for cell in filled):
            return (), 0
        pairs = zip_longest(rows[number - 1], below, fillvalue="")
        return ((), 0) if any(_is_value(*pair) for pair in pairs) else (rows[number - 1], number)
    return (), 0


def _is_value(cell: str, below: str) -> bool:
    """Whether a cell is no name of a column; a year is one, but not above another one."""
    if _YEAR.fullmatch(cell):
        return _YEAR.fullmatch(below) is not None
    return _NUMBER.fullmatch(cell) is not None
