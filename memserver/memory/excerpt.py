"""The part of a text that a query matched: which one it is, and how it is shown in few characters.

Nothing of the text is changed but that matched words stand between `**`, that `…` stands for what is left out,
and that a line break is a blank. Leaves how many characters there are to `results`.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

from memserver.memory.extract import PLAIN
from memserver.memory.folding import Folded, fold, is_blankless
from memserver.text import Span

MARK, GAP = "**", "…"
MOST_TERMS = 32
MOST_PLACES = 1_000  # of one term that are looked at
MOST_PHRASES = 8  # places of the whole query that count apart, each less than the one before
MOST_WINDOWS = 3
SHORTEST_WINDOW = 120
WORTH_A_WINDOW = 1.05
"""So much more has to be shown by one more window, since each has less around it."""
LONG, MOST_LONG = 20_000, 4_000_000
"""Characters of a long text, and of all of these in which the words of one query are looked for."""
SHORTEST_STEM = 4
PART, SHOWN_PART = -1, 200
"""The term that stands for a part that was found, and how much of it has to be shown."""
_JOINING = frozenset("\u200d\ufe0e\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
_BLANKS = re.compile(r"\s+")
_BREAK = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """Where one term of a query stands in a text."""

    start: int
    end: int
    term: int


class Query:
    """What was looked for, in the results of one page: the phrase as it is, and its words."""

    def __init__(self, text: str) -> None:
        self.phrase = text.strip()
        self.folded = fold(self.phrase)
        found = Folded(self.phrase)
        words = [found.text[start:end] for start, end in found.words()]
        words = [word for word in words if word not in PLAIN] or words
        self.grams: list[str] = []
        self.words: dict[str, int] = {}
        self._by_start: dict[str, list[str]] = {}
        for word in sorted(dict.fromkeys(words), key=len, reverse=True)[:MOST_TERMS]:
            if is_blankless(word):
                self.grams += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
            else:
                self.words[word] = len(self.words)
                self._by_start.setdefault(word[:SHORTEST_STEM], []).append(word)
        self.grams = list(dict.fromkeys(self.grams))[:MOST_TERMS]
        self._known: dict[str, int | None] = {}
        self._long = 0

    def has_time_for(self, text: str) -> bool:
        """Whether its words may be looked for in a text: not in any number of very long ones."""
        if len(text) > LONG:
            self._long += len(text)
        return self._long <= MOST_LONG or len(text) <= LONG

    def term_of(self, word: str) -> int | None:
        """The word of the query that this one is, or is another form of."""
        if word not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[word] = self._find(word)
        return self._known[word]

    def _find(self, word: str) -> int | None:
        if word in self.words:
            return self.words[word]
        for own in self._by_start.get(word[:SHORTEST_STEM], ()):
            shorter = min(len(own), len(word))
            shared = max(SHORTEST_STEM, ceil(0.75 * shorter))
            if shorter >= SHORTEST_STEM and own[:shared] == word[:shared]:
                return self.words[own]
        return None


class Matched:
    """A text in which a query has been looked for."""

    def __init__(
        self, text: str, query: Query, part: slice | None = None, *, by_part: bool = True
    ) -> None:
        """Look for a query; takes time in proportion to the text.

        `part` was found by its meaning: alone (`by_part`), or words of the query count as much.
        """
        self.text = text
        self._query = query
        self._hits, self._weights = _hits(text, query)
        if part is not None:
            self._add(Span(*part.indices(len(text))[:2]), by_part=by_part)

    def _add(self, part: Span, *, by_part: bool) -> None:
        """The part as one more term, which stands where most words of the query do in it."""
        inside = [hit for hit in self._hits if part.start <= hit.start and hit.end <= part.end]
        if inside:
            part = _densest(inside, self._weights, part.end - part.start)
        words = sum(self._weights.values())
        self._weights[PART] = words + 1 if by_part else words / 2 + 1
        end = max(part.start + 1, min(part.end, part.start + SHOWN_PART))
        self._hits = sorted([*self._hits, Hit(part.start, end, PART)])

    def place(self, starts: Sequence[int]) -> int | None:
        """Which of the stretches that begin at these characters matches best; None where nothing says so."""
        terms: dict[int, set[int]] = {}
        for hit in self._hits:
            terms.setdefault(bisect_right(starts, hit.start) - 1, set()).add(hit.term)
        if not terms:
            return None
        return max(terms, key=lambda each: sum(self._weights[term] for term in terms[each]))

    def excerpt(self, characters: int) -> str:
        """The text in about so many characters, marks not counted: whole, or what matched of it."""
        if len(self.text) <= characters:
            return self._render([Span(0, len(self.text))])
        cores = self._best_cores(characters) or [Span(0, 0)]
        room = max(0, characters // len(cores) - 2)
        return self._render(_merge(_widen(self.text, core, room) for core in cores))

    def _best_cores(self, characters: int) -> list[Span]:
        """As few windows as show most of the query."""
        best: list[Span] = []
        most = 0.0
        for number in range(1, MOST_WINDOWS + 1):
            width = characters // number - 2
            if number > 1 and width < SHORTEST_WINDOW:
                break
            cores = self._cores(width, number)
            shown = {hit.term for hit in self._hits for core in cores if _within(hit, core)}
            worth = sum(self._weights[term] for term in shown)
            if not best or worth > most * WORTH_A_WINDOW:
                best, most = cores, worth
        return best

    def _cores(self, width: int, number: int) -> list[Span]:
        """So many windows at most that hold most of what matched, each of other terms."""
        cores: list[Span] = []
        hits = self._hits
        while len(cores) < number and hits:
            core = _densest(hits, self._weights, width)
            cores.append(core)
            shown = {hit.term for hit in hits if _within(hit, core)}
            hits = [hit for hit in hits if hit.term not in shown]
        return sorted(cores)

    def _render(self, windows: Sequence[Span]) -> str:
        shown = "" if windows[0].start == 0 else GAP
        for number, window in enumerate(windows):
            shown += f" {GAP} " if number else ""
            shown += one_line(_mark(self.text[window.start : window.end], self._query))
        return shown if windows[-1].end == len(self.text) else shown + GAP


def _hits(text: str, query: Query) -> tuple[list[Hit], dict[int, float]]:
    """Where a query stands in a text, in order, and what each of its terms weighs.

    The phrase itself, where it is there: its first places are terms of their own, each less than the one
    before. Else its words, and pairs of characters: rare and long ones weigh most.
    """
    if not query.phrase:
        return [], {}
    phrases = _places(text, query.phrase)
    folded = None
    if not phrases and query.folded and query.has_time_for(text):
        folded = Folded(text)
        phrases = [folded.original(*place) for place in _places(folded.text, query.folded)]
    if phrases or folded is None:
        last = MOST_PHRASES - 1
        hits = [Hit(*place, min(number, last)) for number, place in enumerate(phrases)]
        return hits, {hit.term: 1 / (1 + hit.term) for hit in hits}
    return _word_hits(folded, query)


def _word_hits(folded: Folded, query: Query) -> tuple[list[Hit], dict[int, float]]:
    counts: Counter[int] = Counter()
    hits: list[Hit] = []
    for start, end in folded.words() if query.words else ():
        term = query.term_of(folded.text[start:end])
        if term is not None:
            counts[term] += 1
            if counts[term] <= MOST_PLACES:
                hits.append(Hit(*folded.original(start, end), term))
    for term, gram in enumerate(query.grams, len(query.words)):
        places = _places(folded.text, gram)
        counts[term] += len(places)
        hits += [Hit(*folded.original(*place), term) for place in places]
    lengths = [len(term) for term in (*query.words, *query.grams)]
    weights = {term: min(lengths[term], 8) / sqrt(count) for term, count in counts.items() if count}
    return sorted(hits), weights


def _places(text: str, wanted: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = text.find(wanted)
    while at >= 0 and len(found) < MOST_PLACES:
        found.append((at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return found


def _densest(hits: Sequence[Hit], weights: dict[int, float], width: int) -> Span:
    """The shortest window of the width that holds the terms of most weight, the first of such."""
    inside: Counter[int] = Counter()
    worth, first = 0.0, 0
    best, best_key = Span(hits[0].start, hits[0].end), (-1.0, 0)
    for hit in hits:
        worth += weights[hit.term] if not inside[hit.term] else 0
        inside[hit.term] += 1
        while first < len(hits) and hits[first] is not hit:
            oldest = hits[first]
            if hit.end - oldest.start <= width and inside[oldest.term] == 1:
                break
            inside[oldest.term] -= 1
            worth -= weights[oldest.term] if not inside[oldest.term] else 0
            first += 1
        start = hits[first].start
        key = (round(worth, 6), start - hit.end)
        if key > best_key:
            best, best_key = Span(start, hit.end), key
    return Span(best.start, min(best.end, best.start + max(width, 1)))


def _within(hit: Hit, window: Span) -> bool:
    return window.start <= hit.start < window.end


def _widen(text: str, core: Span, width: int) -> Span:
    """The window with what stands around it, cut between words where there are any."""
    spare = max(0, width - (core.end - core.start))
    start = max(0, min(core.start - spare // 2, len(text) - width))
    end = min(len(text), max(core.end, start + width))
    if 0 < start < core.start:
        blank = _BLANKS.search(text, start - 1, min(core.start, start + width // 5))
        start = blank.end() if blank else start
    while 0 < start < core.start and _joins_previous(text, start):
        start += 1
    if core.end < end < len(text):
        blanks = list(_BLANKS.finditer(text, max(core.end, end - width // 5), end + 1))
        end = blanks[-1].start() if blanks else end
    while core.end < end < len(text) and _joins_previous(text, end):
        end -= 1
    return Span(start, end)


def cut_after(text: str, start: int, end: int) -> int:
    """Where a piece of a text from `start` to about `end` ends: between words where there are any."""
    if end >= len(text):
        return len(text)
    end = max(end, start + 1)
    blanks = list(_BLANKS.finditer(text, max(start + 1, end - (end - start) // 5), end + 1))
    if blanks:
        return min(blanks[-1].end(), end)
    while end > start + 1 and _joins_previous(text, end):
        end -= 1
    return end


def _joins_previous(text: str, at: int) -> bool:
    """Whether a character belongs to the one before it, as an accent or a part of an emoji does."""
    return unicodedata.combining(text[at]) > 0 or text[at - 1] == "\u200d" or text[at] in _JOINING


def _merge(windows: Iterable[Span]) -> list[Span]:
    """The windows in order, those that meet as one."""
    merged: list[Span] = []
    for window in sorted(windows):
        if merged and window.start <= merged[-1].end + len(GAP) + 2:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, window.end))
        else:
            merged.append(window)
    return merged


def _mark(text: str, query: Query) -> str:
    """The text with what matched between marks; words that stand side by side share them."""
    hits, _ = _hits(text, query)
    if not hits:
        return text
    spans: list[Span] = []
    for hit in hits:
        last = spans[-1] if spans else None
        if last and (hit.start <= last.end or text[last.end : hit.start].isspace()):
            spans[-1] = Span(last.start, max(last.end, hit.end))
        else:
            spans.append(Span(hit.start, hit.end))
    shown = [text[: spans[0].start]]
    for span, following in pairwise([*spans, Span(len(text), len(text))]):
        shown.append(f"{MARK}{text[span.start : span.end]}{MARK}")
        shown.append(text[span.end : following.start])
    return "".join(shown)


def one_line(text: str) -> str:
    """The text with a blank for each run of blanks that has a line break in it."""
    if not _BREAK.search(text):
        return text
    return _BLANKS.sub(lambda run: " " if _BREAK.search(run[0]) else run[0], text)
