"""About how many tokens a text has, where nothing counts them with the model's own tokenizer.

A guess by script and by the shape of words, fitted to the tokenizers of Llama 3, Qwen 3, Gemma 3, DeepSeek 3, GPT-4o and
Mistral's Tekken: for what people write mostly 1.0 to 1.3 times their counts. What an endpoint's usage says corrects the
rest (`memserver.memory.scale`). docs/decisions.md has the figures.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from functools import lru_cache

from memserver.text import clean

PIECE = 20_000
"""Characters that are looked at in one go: no other thread runs meanwhile."""
_CAPITALS = "A-Z\u00c0-\u00d6\u00d8-\u00de"
_SMALL = "a-z\u00df-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_SPLIT = re.compile(f"[{_CAPITALS}]?[{_SMALL}]+|[{_CAPITALS}]+")
"""Words of Latin letters, parted where tokenizers part them: camelCase is two."""
_DIGITS = re.compile(r"[0-9]+")
_MARKS = re.compile(r"[!-/:-@\[-`{-~]+")
_BLANKS = re.compile(r"[ \t]{2,}|[\r\n]+")
_REPEATED = re.compile(r"([^0-9A-Za-z])\1{15,}")
"""Rulers and padding: a token has up to some 16 of one sign."""
_OTHER = re.compile(r"[^\x00-\x7f]+")
_ENGLISH = frozenset(
    """
    the of and to in is that it for as with was on are this be by at not or from you have an he his they
    which one we all will would there their what can if when who do so has her she my me your been more no
    out up about them then into some could its than other only time new very also how just like know get see
    any now our over because use first where after back well way even want day most him had but were said
    here don did too much good think go make say a i s t
    """.split()  # noqa: SIM905 - a list would have a line for each
)
_ENGLISH_SHARE = 0.25
"""Of an English text's words at least so many are of the commonest; other languages' have hardly any."""
_SCRIPTS: tuple[tuple[int, float], ...] = (
    (0x0080, 0.7),  # Latin: what an accent adds to its word
    (0x0250, 1.0),
    (0x0370, 0.52),  # Greek
    (0x0400, 0.45),  # Cyrillic
    (0x0530, 0.9),  # Armenian
    (0x0590, 0.58),  # Hebrew
    (0x0600, 0.5),  # Arabic
    (0x0700, 1.0),
    (0x0900, 0.68),  # Devanagari
    (0x0980, 1.0),  # other scripts of India
    (0x0E00, 0.58),  # Thai
    (0x0E80, 1.1),  # Lao, Tibetan, Burmese, Georgian, Ethiopic, Khmer, …
    (0x1E00, 0.6),  # Latin of Vietnam
    (0x1F00, 0.9),
    (0x2000, 1.0),  # dashes, quotes, arrows, symbols
    (0x2E80, 0.86),  # Chinese
    (0x3000, 0.9),
    (0x3040, 0.68),  # Japanese syllables
    (0x3100, 0.86),
    (0xA000, 1.1),
    (0xAC00, 0.75),  # Korean
    (0xD7B0, 1.0),
    (0x10000, 2.3),  # emoji, and rare characters
)
_STARTS = [start for start, _ in _SCRIPTS]
_MARGIN = 1.04


def estimate(text: str) -> int:
    """About as many tokens as the text has, rather more; never more than its UTF-8 bytes."""
    text = clean(text)
    if not text:
        return 0
    size = len(text) if text.isascii() else len(text.encode())
    if not _REPEATED.search(text):
        found = _of_piece(text) if len(text) <= PIECE else _of_pieces(text)
    else:
        found = sum(len(match[0]) for match in _REPEATED.finditer(text)) / 12
        found += _of_pieces(_REPEATED.sub(r"\1", text))
    return max(1, min(math.ceil(_MARGIN * found), size))


def _of_pieces(text: str) -> float:
    return sum(_of_piece(text[at : at + PIECE]) for at in range(0, len(text), PIECE))


def _of_piece(text: str) -> float:
    found = _of_words(_SPLIT.findall(text))
    digits, marks = _DIGITS.findall(text), _MARKS.findall(text)
    found += 0.82 * sum(map(len, digits)) + 1.2 * len(digits)
    found += 0.55 * len(marks) + 0.1 * sum(map(len, marks))
    found += 0.61 * len(_BLANKS.findall(text))
    if not text.isascii():
        others = Counter("".join(_OTHER.findall(text)))
        found += sum(_weight(character) * count for character, count in others.items())
    return found


def _of_words(words: list[str]) -> float:
    """English has a token for most words, and other languages of its letters one for some three letters."""
    if not words:
        return 0.0
    lengths = Counter(len(word) for word in words if word.lower() not in _ENGLISH)
    rest = sum(lengths.values())
    common = len(words) - rest
    english = min(1.0, common / len(words) / _ENGLISH_SHARE)
    more_than_4 = sum((length - 4) * count for length, count in lengths.items() if length > 4)
    more_than_3 = sum((length - 3) * count for length, count in lengths.items() if length > 3)
    as_english = 1.36 * rest + 0.18 * more_than_4
    as_another = 0.7 * rest + 0.46 * more_than_3
    return 0.5 * common + english * as_english + (1 - english) * as_another


@lru_cache(maxsize=4096)
def _weight(character: str) -> float:
    return _SCRIPTS[bisect_right(_STARTS, ord(character)) - 1][1]
