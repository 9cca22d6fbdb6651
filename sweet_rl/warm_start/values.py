"""Values of facts: names, dates, towns, … Every value is either for training or for tests, never both."""

import tomllib
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

Split = Literal["train", "test"]

DATA = Path(__file__).parent / "data"
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
TEST_SHARE = 5
"""Every fifth value, by its checksum, is for tests."""
_SYLLABLES = [
    "ka",
    "lo",
    "mi",
    "ra",
    "ten",
    "vo",
    "shi",
    "nel",
    "bru",
    "dar",
    "el",
    "fin",
    "gus",
    "hol",
    "ish",
    "jo",
    "kri",
    "lum",
    "mar",
    "nox",
    "or",
    "pel",
    "qui",
    "ros",
    "sal",
    "tor",
    "ul",
    "ven",
    "wil",
    "xan",
    "yor",
    "zed",
    "ba",
    "che",
    "du",
    "fa",
    "gre",
    "ho",
    "il",
    "ju",
    "ke",
    "la",
    "mo",
    "ni",
    "os",
    "pa",
    "re",
    "su",
    "ti",
    "va",
    "we",
]


@cache
def words() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((DATA / "words.toml").read_text(encoding="utf-8"))
    return found


def split_of(value: str) -> Split:
    return "test" if zlib.crc32(value.lower().encode()) % TEST_SHARE == 0 else "train"


def draw(kind: str, word: str, split: Split, random: Random) -> str:
    """A value of this kind from one side of the split."""
    for _ in range(1000):
        value, decider = _any(kind, word, random)
        if split_of(decider) == split:
            return value
    raise ValueError(f"no {split} value of kind {kind} for {word}")


def _any(kind: str, word: str, random: Random) -> tuple[str, str]:
    """A value, and what decides on which side of the split it is."""
    if kind == "date":
        month, day = random.choice(MONTHS), random.randint(1, 28)
        forms = (f"{month} {day}", f"{day} {month}", f"{month} {_ordinal(day)}")
        return random.choice(forms), f"{month} {day}"
    value = _text(kind, word, random)
    return value, value


def _text(kind: str, word: str, random: Random) -> str:
    known = words()
    match kind:
        case "person":
            return random.choice(known["names"]) if random.random() < 0.5 else made_up(random)
        case "pet":
            lists = (known["pets"], known["names"])
            return random.choice(random.choice(lists)) if random.random() < 0.6 else made_up(random)
        case "town":
            return random.choice(known["towns"]) if random.random() < 0.5 else made_up(random)
        case "job" | "food" | "language" | "habit":
            return str(random.choice(known[f"{kind}s"]))
        case "favourite":
            return str(random.choice(known["favourites"][word]))
        case "title":
            return _title(random)
        case "company":
            return f"{made_up(random)} {random.choice(known['business'])}"
        case "number":
            return str(random.randint(3, 4999))
        case "year":
            return str(random.randint(1921, 2026))
        case _:
            raise ValueError(f"no values of kind {kind}")


def made_up(random: Random) -> str:
    return "".join(random.choices(_SYLLABLES, k=random.randint(2, 3))).capitalize()


def _title(random: Random) -> str:
    known = words()
    adjective, noun = random.choice(known["adjectives"]), random.choice(known["nouns"])
    forms = (f"The {adjective} {noun}", f"{adjective} {noun}s", f"{noun} of {made_up(random)}")
    return " ".join(
        part.capitalize() if part != "of" else part for part in random.choice(forms).split()
    )


def _ordinal(day: int) -> str:
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"
