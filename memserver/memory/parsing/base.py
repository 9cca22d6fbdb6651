"""What a parser gives back. Leaves chunks, tokens and vectors to `memory`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from memserver.text import clean

Kind = Literal[
    "text",
    "markdown",
    "html",
    "pdf",
    "docx",
    "jsonl",
    "csv",
    "xlsx",
    "xls",
    "ods",
    "pptx",
    "odt",
    "odp",
    "epub",
    "rtf",
    "email",
    "json",
    "notebook",
    "code",
]

KINDS = (
    "text, Markdown, HTML, PDF, Word, Excel, PowerPoint, OpenDocument, EPUB, RTF, CSV, JSON, e-mail, "
    "notebooks or source code"
)

LONGEST_TEXT = 20_000_000  # characters of one document's text: about 10,000 pages
MOST_SECTIONS = 200_000
SHORTEST_SENTENCE = 32
"""Characters; shorter ones count with the next one, so that their number is bounded."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    content: bytes = field(repr=False)
    kind: Kind  # as `detect` found it
    charset: str = ""  # in which it was declared to be
    language: str = "en"  # whose abbreviations don't end a sentence, as an ISO 639-1 code
    tesseract: str = ""  # the program that recognizes text in images, where it is installed
    seconds: float = 120  # that reading it may take


@dataclass(frozen=True, slots=True)
class TextSection:
    """A stretch of the text, up to the next one."""

    start: int  # the character at which it begins
    page: int | None = None  # from 1, where the file has pages
    heading: str = ""  # the headings above it, outermost first, joined by " > "
    record: int | None = None  # the line of a JSON Lines file, or the place in a JSON array, from 1
    row: int | None = None  # of a table or sheet, from 1, which is mostly the one of the names
    header: tuple[int, int] | None = None  # where its table's names stand in the text
    border: bool = True  # whether a chunk may not run on into it; a page's end is none
    tags: Sequence[str] = ()  # what a record brings along for its passages
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain values, without those that are as ever: a table has many sections."""
        default = TextSection(self.start)
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {
            "start": self.start,
            **{name: value for name, value in values if value != getattr(default, name)},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        header = value.get("header")
        return cls(**{**value, "header": header and tuple(header)})


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document's text and where what begins in it, in characters."""

    text: str
    sections: Sequence[TextSection] = ()
    sentences: Sequence[
        int
    ] = ()  # the starts of all sentences, or of what else is not cut; found if empty
    pages: int | None = None  # how many, where the file has pages
    warnings: Sequence[str] = ()  # what could not be read, or was guessed, for a person
    metadata: Mapping[str, Any] = field(default_factory=dict)  # what it says of itself
    tags: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the way between processes."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "sections": [section.to_json() for section in self.sections]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        sections = [TextSection.from_json(section) for section in value["sections"]]
        return cls(**{**value, "sections": sections})


def plain(text: str) -> str:
    """The text with one kind of line end, and without what a database can't store."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")
