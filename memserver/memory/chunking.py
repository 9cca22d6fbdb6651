"""Cuts a text into chunks that an embedder reads to their end. Leaves vectors and storage to others.

A chunk ends where a sentence does, and never runs over a border such as a heading or a record. Where it
begins within such a stretch, it repeats the last sentences of the one before. A sentence that is longer
than a chunk is cut between words, and a word that is, between characters. One that begins within a table
has room for the names of the table's columns, its lead.
"""

import asyncio
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memserver.embeddings.base import LONGEST, Embedder, Vector
from memserver.errors import EmbeddingRejected
from memserver.memory.parsing.sentences import sentences
from memserver.text import Span

DEFAULT_OVERLAP = 32
_SPACE = re.compile(r"\s+")
LEAD_SHARE = 3
"""A lead has at most a chunk's tokens divided by this."""
_MOST_ACCENTS = 32  # on one letter, that a cut goes back over


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence or a piece of one, with its tokens."""

    span: Span
    tokens: int
    lead: int = 0  # more tokens, if a chunk begins with it


LeadOf = Callable[[int], Span | None]
"""Which lead a chunk has that begins at a character."""


def no_lead(_: int) -> None:
    """Of a text without tables."""


def lead_in(text: str, lead: Span | None) -> str:
    """What stands before a chunk with this lead."""
    return text[lead.start : lead.end] + "\n" if lead else ""


class Chunker:
    def __init__(
        self, embedder: Embedder, *, tokens: int | None = None, overlap: int = DEFAULT_OVERLAP
    ) -> None:
        """Cut for an embedder, which counts.

        Args:
            embedder: counts, and says how much it reads.
            tokens: of a chunk at most; None, or more than the embedder reads: what it reads.
            overlap: how many of these repeat the end of the chunk before, at most.
        """
        self._embedder = embedder
        self._tokens = tokens
        self._overlap = overlap

    async def plan(
        self,
        text: str,
        starts: Sequence[int] = (),
        borders: Iterable[int] = (),
        lead_of: LeadOf = no_lead,
    ) -> list[Span]:
        """The chunks of a text, in their order.

        Sentences begin at `starts`, and chunks end at `borders`; `lead_of` a character says which names of
        columns are repeated before a chunk that begins there.
        """
        borders = sorted({0, *borders, len(text)})
        cuts = sorted({*borders, *starts})
        room = await self._room()
        units = await self._units(text, await asyncio.to_thread(_spans, text, cuts), room)
        leads = [lead_of(unit.span.start) for unit in units]
        known = sorted({lead for lead in leads if lead})
        tokens = dict(zip(known, await self._count(text, known), strict=True)) if known else {}
        units = [
            replace(unit, lead=tokens[lead]) if lead else unit
            for unit, lead in zip(units, leads, strict=True)
        ]
        chunks: list[Span] = []
        for stretch in _split(units, borders):
            chunks += _pack(stretch, room, min(self._overlap, room // 2))
        return [unit.span for unit in await self._units(text, chunks, room, lead_of)]

    async def fits(self, text: str, lead: Span) -> bool:
        """Whether a chunk has room for such a lead, and for twice as much."""
        [tokens] = await self._count(text, [lead])
        return tokens <= await self._room() / LEAD_SHARE

    async def _room(self) -> int:
        [frame] = await self._embedder.count_tokens([""])
        window = self._embedder.window
        return max(1, min(self._tokens or window, window) - frame)

    async def _units(
        self, text: str, spans: list[Span], room: int, lead_of: LeadOf = no_lead
    ) -> list[_Unit]:
        """The spans with their tokens; what is too long, with its lead, is halved until it fits."""
        done: list[_Unit] = []
        while spans:
            shorter: list[Span] = []
            for span in [span for span in spans if span.end - span.start > LONGEST]:
                shorter += _halve(text, span)
            spans = [span for span in spans if span.end - span.start <= LONGEST]
            for span, tokens in zip(spans, await self._count(text, spans, lead_of), strict=True):
                if tokens <= room:
                    done.append(_Unit(span, tokens))
                else:
                    shorter += _halve(text, span)
            spans = shorter
        return sorted(done, key=lambda unit: (unit.span.start, unit.span.end))

    async def _count(
        self, text: str, spans: Sequence[Span], lead_of: LeadOf = no_lead
    ) -> list[int]:
        """Tokens of each span with its lead, without those that frame every text."""
        texts = [lead_in(text, lead_of(at.start)) + text[at.start : at.end] for at in spans]
        [frame, *counts] = await self._embedder.count_tokens(["", *texts])
        # One character can't be cut, whatever it costs.
        return [
            1 if span.end - span.start == 1 else count - frame
            for span, count in zip(spans, counts, strict=True)
        ]


async def cut_long(texts: Sequence[str], embedder: Embedder) -> dict[int, list[Span]]:
    """How those of the texts are to be cut that an embedder would not read to their end, by their place."""
    counts = await embedder.count_tokens(texts)
    chunker = Chunker(embedder)
    return {
        place: await chunker.plan(text, await asyncio.to_thread(sentences, text))
        for place, (text, count) in enumerate(zip(texts, counts, strict=True))
        if text.strip() and (count > embedder.window or len(text) > LONGEST)
    }


async def embed_whole(texts: Sequence[str], embedder: Embedder) -> list[Vector]:
    """One vector for each text: for one that is too long, the mean of its chunks' vectors.

    For passages that are there already and can't become several.
    """
    cuts = await cut_long(texts, embedder)
    chunks = [
        [text[span.start : span.end] for span in cuts.get(place, [Span(0, len(text))])]
        for place, text in enumerate(texts)
    ]
    vectors = iter(await embedder.embed([chunk for of_text in chunks for chunk in of_text]))
    return [_mean([next(vectors) for _ in of_text]) for of_text in chunks]


async def embed_each(texts: Sequence[str], embedder: Embedder) -> list[Vector | EmbeddingRejected]:
    """A vector for each text, or why the embedder refuses it."""
    try:
        return [*await embedder.embed(texts)]
    except EmbeddingRejected as error:
        if not error.of_text:
            raise
        if len(texts) == 1:
            return [error]
    half = len(texts) // 2
    return [*await embed_each(texts[:half], embedder), *await embed_each(texts[half:], embedder)]


def _mean(vectors: Sequence[Vector]) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    summed = [sum(values) for values in zip(*vectors, strict=True)]
    length = math.hypot(*summed) or 1.0
    return [value / length for value in summed]


def _split(units: list[_Unit], borders: list[int]) -> list[list[_Unit]]:
    starts = [unit.span.start for unit in units]
    stretches = [
        units[bisect_left(starts, low) : bisect_left(starts, high)]
        for low, high in pairwise(borders)
    ]
    return [stretch for stretch in stretches if stretch]


def _pack(units: list[_Unit], room: int, overlap: int) -> list[Span]:
    """As many units in each chunk as fit, the last ones of a chunk again at the start of the next."""
    chunks = []
    first = 0
    while first < len(units):
        last, tokens = first, units[first].lead + units[first].tokens
        while last + 1 < len(units) and tokens + units[last + 1].tokens <= room:
            last += 1
            tokens += units[last].tokens
        chunks.append(Span(units[first].span.start, units[last].span.end))
        if last + 1 == len(units):
            break
        first = _next_start(units, first, last, room, overlap)
    return chunks


def _next_start(units: list[_Unit], first: int, last: int, room: int, overlap: int) -> int:
    """Where the chunk after `last` begins."""
    begin, repeated = last + 1, 0
    while (
        begin - 1 > first
        and repeated + units[begin - 1].tokens <= overlap
        and units[begin - 1].lead + repeated + units[begin - 1].tokens + units[last + 1].tokens
        <= room
    ):
        begin -= 1
        repeated += units[begin].tokens
    return begin


def _halve(text: str, span: Span) -> list[Span]:
    """Two spans, cut at the space that is nearest to the middle, or between two characters."""
    middle = (span.start + span.end) // 2
    quarter = max(1, (span.end - span.start) // 4)
    spaces = [at.start() for at in _SPACE.finditer(text, middle - quarter, middle + quarter)]
    if spaces:
        cut = min(spaces, key=lambda at: abs(at - middle))
    else:
        before = range(middle, max(span.start, middle - _MOST_ACCENTS), -1)
        cut = next((at for at in before if not unicodedata.combining(text[at])), middle)
    halves = [_trim(text, Span(span.start, cut)), _trim(text, Span(cut, span.end))]
    return [half for half in halves if half.start < half.end]


def _spans(text: str, cuts: Sequence[int]) -> list[Span]:
    """What lies between the cuts, without white space around it. For a thread: there may be many."""
    spans = (_trim(text, Span(*pair)) for pair in pairwise(cuts))
    return [span for span in spans if span.start < span.end]


def _trim(text: str, span: Span) -> Span:
    """Without the space around it."""
    inner = text[span.start : span.end]
    start = span.start + len(inner) - len(inner.lstrip())
    return Span(start, max(start, span.start + len(inner.rstrip())))
