"""What a search found, as a model reads it: each result with a label, and as much of its text as there is room for.

A page takes at most a quarter of the reader's window. Texts are whole where that holds; else each has an equal
share, what short ones leave goes to the others, and a text that is cut shows what matched (`excerpt`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, TypeVar

from memserver.memory.excerpt import Matched, Query, one_line
from memserver.memory.paging import PAGE_SIZE, ResultPage
from memserver.messages import Entry, StoredPassage
from memserver.text import snippet, stamp

T = TypeVar("T")

READ_TOOL = "memory_read"
SHARE = 4  # a page has the window's tokens divided by this
TOKENS_OF_A_RESULT = 128
"""What is worth reading, its label and time included: a small window has fewer results on a page."""
LEAST_ROOM = 64
MOST_CHARACTERS = 40_000  # of one result, whatever room there is: more than any passage
DENSEST = 8  # characters of a token: hardly a text has more
WIDEST = 5  # tokens of a character at most: its bytes, and its part of the marks
CAREFUL = (0.95, 0.8, 0)  # of the characters that should fit, how many are taken after each count
INLINE_CHARACTERS = 20_000
"""Up to here looking for what matched takes a few milliseconds; more goes to a thread."""
EXCERPT_CHARACTERS = 500
SHOWN_ORIGIN, ORIGIN_SHARE = 60, 64
"""Characters of a document's name, or of a heading; in a small window its tokens divided by this."""


@dataclass(frozen=True, slots=True)
class ResultReader:
    """The model that reads results."""

    window: int  # its tokens, of prompt and output together
    count: Callable[[Sequence[str]], Awaitable[list[int]]]  # counts tokens of texts
    scale: float = 1.0  # the model's tokens for each one that is counted
    # Counted tokens up to which its prompt shows a text whole; None: any
    room: Callable[[], Awaitable[int]] | None = None
    can_read_on: bool = True  # whether it has the tool `memory_read`

    def page(self, number: int) -> ResultPage:
        """A page with as many results as are worth reading in its tokens."""
        size = self.window // SHARE // TOKENS_OF_A_RESULT
        return ResultPage(number, max(1, min(PAGE_SIZE, size)))

    async def limit(self) -> int:
        counted = int(self.window // SHARE / self.scale)
        if self.room is not None:
            counted = min(counted, await self.room())
        return max(LEAST_ROOM, counted)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in a document a passage comes from."""

    name: str = ""
    heading: str = ""
    # Each with the character of the passage at which it begins; where that isn't known, all at 0
    pages: tuple[tuple[int, int], ...] = ()
    rows: tuple[int, ...] = ()  # the first and, if there are more, the last one

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "Origin":
        starts = metadata.get("page_starts")
        if not isinstance(starts, list):
            starts = [[metadata.get("page_end"), 0]]
        pages = tuple(
            (each[0], each[1])
            for each in [[metadata.get("page"), 0], *starts]
            if isinstance(each, list) and [type(number) for number in each] == [int, int]
        )
        name, heading = metadata.get("document_name"), metadata.get("heading")
        rows = (metadata.get("row"), metadata.get("row_end"))
        numbers = tuple(row for row in rows if isinstance(row, int))
        return cls(str(name or ""), str(heading or ""), pages, numbers)

    def page_of(self, matched: Matched) -> int | None:
        if len(self.pages) < 2 or not self.pages[-1][1]:
            return self.page_at(0)
        place = matched.place([start for _, start in self.pages])
        return None if place is None else self.pages[place][0]

    def page_at(self, character: int) -> int | None:
        """The page on which a character stands; None where that isn't known."""
        if len(self.pages) > 1 and not self.pages[-1][1]:
            return None
        return next((page for page, start in reversed(self.pages) if start <= character), None)

    def describe(self, page: int | None, most: int) -> list[str]:
        """As a model reads it: rules.pdf, page 3, Fees; without a page, over which it runs.

        Name and heading have so many characters at most.
        """
        if not self.name:
            return []
        where = ""
        if page is not None:
            where = f"page {page}"
        elif self.pages:
            where = f"pages {self.pages[0][0]}-{self.pages[-1][0]}"
        rows = "-".join(map(str, self.rows))
        rows = rows and f"row{'s' * (len(self.rows) > 1)} {rows}"
        parts = (self.name, where, self.heading, rows)
        return [snippet(part, most) for part in parts if part]


@dataclass(frozen=True, slots=True)
class Result:
    label: str  # by which it can be read whole
    text: str
    at: str  # its time, in the reader's zone
    speaker: str = ""  # who said it, where it was said
    origin: Origin = field(default_factory=Origin)  # where it comes from
    found_by: Sequence[str] = ()  # how it was found, where that is worth saying
    part: slice | None = None  # what of the text was found, where that is known

    def matched(self, query: Query) -> Matched:
        by_part = not {"exact", "words"}.intersection(self.found_by)
        return Matched(self.text, query, self.part, by_part=by_part)

    def head(self, page: int | None, reader: ResultReader) -> str:
        """What stands before the text: [p17, 2026-02-07 14:03, rules.pdf, page 3]."""
        origin = self.origin.describe(page, min(SHOWN_ORIGIN, reader.window // ORIGIN_SHARE))
        about = [self.label, self.at, " and ".join(self.found_by), *origin]
        speaker = f"{self.speaker}: " if self.speaker else ""
        return f"[{', '.join(each for each in about if each)}] {speaker}"


def message_result(
    message: Entry, zone: tzinfo, *, found_by: Sequence[str] = (), part: slice | None = None
) -> Result:
    at = stamp(message.created_at, zone)
    return Result(
        message_label(message.position), message.text, at, message.role, Origin(), found_by, part
    )


def passage_result(passage: StoredPassage, label: str, zone: tzinfo) -> Result:
    at = stamp(passage.created_at, zone)
    return Result(label, passage.text, at, origin=Origin.of(passage.metadata))


def message_label(position: int) -> str:
    """What a message is called: m12003."""
    return f"m{position}"


def passage_label(number: int, collection: str | None = None) -> str:
    """What a passage is called: p17, or p17@handbook in a shared collection."""
    return f"p{number}" if collection is None else f"p{number}@{collection}"


@dataclass(frozen=True, slots=True)
class _Line:
    head: str
    tail: str
    matched: Matched

    @property
    def length(self) -> int:
        return len(self.matched.text)

    def show(self, characters: int) -> str:
        """The line: the text whole, or so many characters of it with what matched marked."""
        if self.length <= characters:
            return f"{self.head}{one_line(self.matched.text)}"
        return f"{self.head}{self.matched.excerpt(characters)}{self.tail}"


async def describe(head: str, results: Sequence[Result], query: str, reader: ResultReader) -> str:
    """The answer of a search tool, each result on a line after the `head`; an empty query was no text."""
    if not results:
        return head
    wanted = Query(query)
    lines = await offload(
        lambda: [_line(result, wanted, reader) for result in results],
        sum(len(result.text) for result in results),
    )
    return "\n".join([head, *await _fitting(head, lines, reader)])


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What matched of a result, marked, with its surroundings; `page`: on which of its document that stands."""

    text: str
    page: int | None


async def excerpts(results: Sequence[Result], query: str) -> list[Excerpt]:
    wanted = Query(query)

    def find() -> list[Excerpt]:
        found = [each.matched(wanted) for each in results]
        return [
            Excerpt(matched.excerpt(EXCERPT_CHARACTERS), result.origin.page_of(matched))
            for result, matched in zip(results, found, strict=True)
        ]

    return await offload(find, sum(len(result.text) for result in results))


async def offload(work: Callable[[], T], characters: int) -> T:
    """Work on so many characters, in a thread if that takes long."""
    return work() if characters <= INLINE_CHARACTERS else await asyncio.to_thread(work)


def _line(result: Result, query: Query, reader: ResultReader) -> _Line:
    matched = result.matched(query)
    on = f"; {READ_TOOL} {result.label}" if reader.can_read_on else ""
    head = result.head(result.origin.page_of(matched), reader)
    return _Line(head, f" (of {len(result.text):,} characters{on})", matched)


async def _fitting(head: str, lines: Sequence[_Line], reader: ResultReader) -> list[str]:
    """The lines, so that they take no more tokens than the reader has for a page; counted once or twice."""
    limit = await reader.limit()
    sizes = [min(line.length, MOST_CHARACTERS) for line in lines]
    characters = share_out(sizes, limit * DENSEST)
    around = "\n".join(f"{line.head}{line.tail}" for line in lines)
    for careful in CAREFUL:
        shown = await _show(lines, characters)
        counts = await reader.count([f"{head}\n", around, *shown])
        fixed, costs = counts[1] / len(lines), counts[2:]
        room = limit - counts[0] - len(lines)
        if sum(costs) <= room:
            return shown
        fair = share_out(costs, room)
        characters = [
            most if cost <= share else shrink(most, cost - fixed, share - fixed, careful)
            for most, cost, share in zip(characters, costs, fair, strict=True)
        ]
    return await _show(lines, characters)


def shrink(characters: int, tokens: float, share: float, careful: float) -> int:
    """How many of the characters, which have so many tokens, have a share of them; 0 care: surely no more."""
    if not careful:
        return int(max(0, share) / WIDEST)
    return int(characters * careful * max(0, share) / max(1, tokens))


async def _show(lines: Sequence[_Line], characters: Sequence[int]) -> list[str]:
    return await offload(
        lambda: [line.show(most) for line, most in zip(lines, characters, strict=True)],
        sum(line.length for line in lines),
    )


def share_out(wanted: Sequence[int], total: int) -> list[int]:
    """The total shared out equally, except that nobody gets more than wanted."""
    given: dict[int, int] = {}
    for place in sorted(range(len(wanted)), key=wanted.__getitem__):
        fair = max(0, total) // (len(wanted) - len(given))
        given[place] = min(wanted[place], fair)
        total -= given[place]
    return [given[place] for place in range(len(wanted))]
