"""Kinds of facts with their values (names, dates, towns, …), and how people tell them and ask about them.

Every value is either for training or for tests, never both.
"""

import re
import zlib
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Literal

from sweet_rl.warm_start.wordings import read_data

_SAY = read_data("wordings")["dressing"]

Split = Literal["train", "test"]

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
TEST_SHARE = 5
"""Every fifth value, by its checksum, is for tests."""
_FIELD = re.compile(r"(\{\w+\})")


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
        forms = _date_forms(random)
        return random.choice(forms), forms[0]
    value = _text(kind, word, random)
    return value, value


def date_forms(split: Split, random: Random) -> tuple[str, ...]:
    """One day of this side of the split, in every form."""
    while split_of((forms := _date_forms(random))[0]) != split:
        pass
    return forms


def _date_forms(random: Random) -> tuple[str, ...]:
    month, day = random.choice(MONTHS), random.randint(1, 28)
    return f"{month} {day}", f"{day} {month}", f"{month} {_ordinal(day)}"


def _text(kind: str, word: str, random: Random) -> str:
    known = read_data("words")
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
    return "".join(random.choices(_SAY["syllables"], k=random.randint(2, 3))).capitalize()


def _title(random: Random) -> str:
    known = read_data("words")
    adjective, noun = random.choice(known["adjectives"]), random.choice(known["nouns"])
    forms = (f"The {adjective} {noun}", f"{adjective} {noun}s", f"{noun} of {made_up(random)}")
    return " ".join(
        part.capitalize() if part != "of" else part for part in random.choice(forms).split()
    )


def _ordinal(day: int) -> str:
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


@dataclass(frozen=True, slots=True)
class Wording:
    """Ways to say one thing; the last one is for tests only."""

    forms: tuple[str, ...]

    def pick(self, held_out: bool, random: Random) -> str:
        return self.forms[-1] if held_out else random.choice(self.forms[:-1])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fact, such as the name of somebody's dog."""

    word: str  # the thing
    label: str  # how a note calls it
    key: str  # what a search looks for
    value: str  # the kind of its values
    tell: Wording  # what the person says, here and in `ask`
    ask: Wording
    answer: tuple[str, ...]  # what the agent says
    comment: tuple[str, ...] = ()  # what the agent says when it is told, where it takes no note
    held_out: bool = field(default=False)  # for tests only


@dataclass(frozen=True, slots=True)
class Fact:
    kind: Kind
    value: str

    @property
    def note(self) -> str:
        return f"{self.kind.label}: {self.value}"

    def filled(self, form: str) -> str:
        article = "an" if self.value[:1].lower() in "aeiou" else "a"
        return form.format(
            w=self.kind.word,
            W=_upper(self.kind.word),
            v=self.value,
            V=_upper(self.value),
            av=f"{article} {self.value}",
        )


@cache
def lasting() -> tuple[Kind, ...]:
    return _kinds("facts")


@cache
def passing() -> tuple[Kind, ...]:
    return _kinds("episodes")


def new_fact(kind: Kind, split: Split, random: Random, *, but: str = "") -> Fact:
    """A fact of this kind with a value other than `but`. Raises ValueError where there is none."""
    for _ in range(100):
        value = draw(kind.value, kind.word, split, random)
        if value != but:
            return Fact(kind, value)
    raise ValueError(f"{kind.label} has no other {split} value than {but}")


def dressed(form: str, fact: Fact, random: Random) -> str:
    """What a person says, in their own way: small words around it, a dropped capital or full stop."""
    style = random.random()
    before = random.choice(_SAY["before_a_question"] if form.endswith("?") else _SAY["before"])
    if before and not form.startswith(("I ", "I'", "{v}", "{V}")):
        form = form[:1].lower() + form[1:]
    form = before + form + ("" if form.endswith("?") else random.choice(_SAY["after"]))
    form = form[:1].upper() + form[1:] if not form.startswith("{") else form
    if style < 0.12:
        form = "".join(
            part if _FIELD.fullmatch(part) else part.lower() for part in _FIELD.split(form)
        )
    text = fact.filled(form)
    return text.rstrip(".?") if 0.12 <= style < 0.2 else text


def _kinds(name: str) -> tuple[Kind, ...]:
    families = read_data(name)["family"]
    return tuple(
        _kind(family, word, held_out=held_out)
        for family in families
        for words, held_out in ((family["words"], False), (family["held_out"], True))
        for word in words
    )


def _kind(family: dict[str, list[str]], word: str, *, held_out: bool) -> Kind:
    fields = {"w": word, "W": _upper(word)}
    return Kind(
        word=word,
        label=str(family.get("label", "{W}")).format(**fields),
        key=str(family.get("key", "{w}")).format(**fields),
        value=str(family["value"]),
        tell=Wording(tuple(family["tell"])),
        ask=Wording(tuple(family["ask"])),
        answer=tuple(family["answer"]),
        comment=tuple(family.get("comment", ())),
        held_out=held_out,
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
