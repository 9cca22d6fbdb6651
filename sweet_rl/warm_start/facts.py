"""Kinds of facts, and how people tell them and ask about them."""

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from sweet_rl.warm_start.values import Split, draw

DATA = Path(__file__).parent / "data"
BEFORE = (
    *(
        "",
        "",
        "",
        "",
        "so, ",
        "well, ",
        "oh, ",
        "by the way, ",
        "hey, ",
        "guess what: ",
        "you know, ",
    ),
    *("okay, ", "just so you know: ", "one more thing: ", "ah, ", "and "),
)
BEFORE_A_QUESTION = ("", "", "", "", "so, ", "by the way, ", "hey, ", "okay, ", "hm, ", "tell me, ")
BEHIND = (
    "",
    "",
    "",
    "",
    "",
    " :)",
    " Just so you know.",
    " Haha.",
    " That's it.",
    " Isn't that nice?",
)
_FIELD = re.compile(r"(\{\w+\})")


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
    tell: Wording  # (tell, ask) what the person says
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
    return _kinds("facts.toml")


@cache
def passing() -> tuple[Kind, ...]:
    return _kinds("episodes.toml")


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
    before = random.choice(BEFORE_A_QUESTION if form.endswith("?") else BEFORE)
    if before and not form.startswith(("I ", "I'", "{v}", "{V}")):
        form = form[:1].lower() + form[1:]
    form = before + form + ("" if form.endswith("?") else random.choice(BEHIND))
    form = form[:1].upper() + form[1:] if not form.startswith("{") else form
    if style < 0.12:
        form = "".join(
            part if _FIELD.fullmatch(part) else part.lower() for part in _FIELD.split(form)
        )
    text = fact.filled(form)
    return text.rstrip(".?") if 0.12 <= style < 0.2 else text


def _kinds(name: str) -> tuple[Kind, ...]:
    families = tomllib.loads((DATA / name).read_text(encoding="utf-8"))["family"]
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
