"""What a parser gives back. Leaves chunks, tokens and vectors to `memory`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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

KINDS = "text, Markdown, HTML, PDF, DOCX, source code or JSON Lines"

LONGEST_TEXT = 20_000_000  # characters of one document's text: about 10,000 pages
MOST_SECTIONS = 200_000
SHORTEST_SENTENCE = 32
"""Characters; shorter ones count with the next one, so that their number is bounded."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that is read."""

    content: bytes = field(repr=False)
    kind: Kind  # as `detect` found it
    charset: str = ""  # in which it was declared to be
    language: str = "en"  # whose abbreviations don't end a sentence, as an ISO 639-1 code


@dataclass(frozen=True, slots=True)
class TextSection:
    """A stretch of the text, up to the next one."""

    start: int  # the character at which it begins
    page: int | None = None  # from 1, where the file has pages
    heading: str = ""  # the headings above it, outermost first, joined by " > "
    record: int | None = None  # the line of a JSON Lines file, from 1
    border: bool = True  # whether a chunk may not run on into it; a page's end is none
    tags: Sequence[str] = ()  # what a record brings along for its passages
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document's text and where what begins in it, in characters."""

    text: str
    sections: Sequence[TextSection] = ()
    sentences: Sequence[
        int
    ] = ()  # the starts of all sentences, or of what else is not cut; found if empty
    pages: int | None = None  # how many, where the file has pages
    warnings: Sequence[str] = ()  # what could not be read, for a person

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the way between processes and into the database."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """What `to_json` gave."""
        sections = [TextSection(**section) for section in value["sections"]]
        return cls(**{**value, "sections": sections})


def plain(text: str) -> str:
    """The text with one kind of line end, and without what a database can't store."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")
