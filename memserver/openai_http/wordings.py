"""What endpoints say when they refuse, and what it means; wordings.toml has the words of each provider.

Words decide only where a status doesn't: providers don't agree on those.
"""

import re
import tomllib
from importlib.resources import files
from typing import Literal

Meaning = Literal[
    "refused", "exhausted", "limited_by_period", "unknown_model", "loading", "not_able", "bad_key"
]
"""A content filter refuses; the account has nothing left, or its day's or month's part; there is no such model, it is
being loaded; the server can't do what is wanted, now and later; the key is no good."""

_WORDS = tomllib.loads(files(__package__).joinpath("wordings.toml").read_text(encoding="utf-8"))


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_OVERFLOWS = [_compile(words) for words in _WORDS["overflow"]]
_LARGER_THAN_A_MINUTE = _compile(_WORDS["larger_than_a_minute"])
_MEANINGS = {meaning: _compile("|".join(words)) for meaning, words in _WORDS["meanings"].items()}
_CODES = [(_compile(words), int(status)) for status, words in _WORDS["codes"].items()]
_GOOGLE_GONE = re.compile(r"PerDay|per day|\blimit: 0\b")
"""Google says "You exceeded your current quota" of a minute's limit as well (google-gemini/gemini-cli#8437)."""
_SOON = 60
"""Seconds: a day's limit that rolls may be kept again after so short a time."""


def says(text: str, meaning: Meaning) -> bool:
    return _MEANINGS[meaning].search(text) is not None


def window_in(text: str, *, limited: bool = False) -> int | None:
    """Whether the words say that a prompt is too long: 0, or the window that they name; None: they don't.

    Of what a limit on requests says (`limited`) only a request counts that is larger than a minute's worth.
    """
    if found := _LARGER_THAN_A_MINUTE.search(text):
        window, requested = _number(found["window"]), _number(found["requested"])
        return window if requested > window else None
    if limited:
        return None
    found = next(filter(None, (words.search(text) for words in _OVERFLOWS)), None)
    return None if found is None else _number(found.groupdict().get("window"))


def is_exhausted(text: str, wait: float | None) -> bool:
    """Whether the account has nothing left, for longer than a request waits."""
    if "RESOURCE_EXHAUSTED" in text:
        return _GOOGLE_GONE.search(text) is not None
    if says(text, "exhausted") or "exceeded your current quota" in text:
        return True
    return says(text, "limited_by_period") and (wait is None or wait > _SOON)


def status_in(words: str) -> int | None:
    """The status of HTTP that a code in words stands for."""
    return next((status for code, status in _CODES if code.search(words)), None)


def _number(digits: str | None) -> int:
    return int((digits or "").replace(",", "") or 0)
