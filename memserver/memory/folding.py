"""Texts as a search compares them: without case, accents and Unicode forms, and with the way back.

Owns what a word is in any script. Everything takes time in proportion to the text.
"""

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

_SLICE = 50_000  # characters that are folded at once: no other thread runs meanwhile
LONGEST_FORM = 4  # characters that one may become; there are such that would become eighteen
_MARK = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u065f\u0670]")
"""Accents, Hebrew and Arabic points. The marks of kana and the vowels of Indic scripts and Thai stay."""
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "\u0131": "i"}
)
_PIECE = re.compile("[\u1100-\u115f][\u1160-\u11ff]{0,2}|.", re.DOTALL)
"""A character, or a Korean syllable that is written in parts."""
_BLANKLESS = (
    "\u0e00-\u0eff\u0f00-\u0f0a\u0f0c-\u0fff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17ff"
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that put no blank between words, and Korean, which puts none before its endings."""
_BETWEEN = (
    r"\s!-/:-@\[-`{-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u055a-\u055f\u0589\u05be\u05c3"
    r"\u060c\u061b\u061f\u066a-\u066d\u06d4\u0964\u0965\u0f0b\u104a-\u104f\u1361-\u1368\u17d4-\u17db"
    r"\u2000-\u206f\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u30a0\u30fb\ufe30-\ufe6f"
    r"\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
_WORD = re.compile(f"[{_BLANKLESS}]+|[^{_BLANKLESS}{_BETWEEN}]+")
_GRAM = re.compile(f"[{_BLANKLESS}]")


class _Pieces(dict[str, str]):
    """Each piece's folded form, made when it is first needed."""

    def __missing__(self, piece: str) -> str:
        form: Literal["NFKC", "NFKD"] = (
            "NFKC" if "\u1100" <= piece[0] <= "\u115f" or "가" <= piece <= "힣" else "NFKD"
        )
        normal = unicodedata.normalize(form, piece)
        folded = (normal if len(normal) <= LONGEST_FORM else piece).casefold()
        folded = _MARK.sub("", folded).translate(_LETTERS)
        if len(self) < 20_000:
            self[piece] = folded
        return folded


_pieces = _Pieces()


class Folded:
    """A text, folded; `original` says where a stretch of it stands in the text as it was."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._here = self._there = array("L")
        if text.isascii():
            self.text = text.lower()
            return
        parts: list[str] = []
        self._here, self._there = array("L", [0]), array("L", [0])
        for at in range(0, len(text), _SLICE):
            pieces = _PIECE.findall(text, at, at + _SLICE)
            folded = [_pieces[piece] for piece in pieces]
            parts.append("".join(folded))
            self._here.extend(accumulate(map(len, folded), initial=self._here.pop()))
            self._there.extend(accumulate(map(len, pieces), initial=self._there.pop()))
        self.text = "".join(parts)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original that folds to this one, its last letter's accents included."""
        if not self._here:
            return start, end
        return self._place(start), self._place(end)

    def _place(self, at: int) -> int:
        return self._there[bisect_right(self._here, at) - 1]

    def words(self) -> Iterator[tuple[int, int]]:
        """Where its words stand, or the runs of characters of a script without blanks."""
        return (found.span() for found in _WORD.finditer(self.text))


def fold(text: str) -> str:
    return Folded(text).text


def is_blankless(word: str) -> bool:
    """Whether it is of a script without blanks, so that pairs of its characters are compared."""
    return _GRAM.match(word) is not None
