"""What nobody says: somebody is back, a timer goes off, a document has come. And what is right to say to it."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from sweet_rl.warm_start.facts import Fact
from sweet_rl.warm_start.intents import Notice, Saying
from sweet_rl.warm_start.wordings import read_data

T = TypeVar("T")
_SAY = read_data("events")
_KINDS = {"timer": 40, "login": 30, "custom": 18, "upload": 12}
GROUPED = 0.7
"""Of timers: the share whose words are put together, others are written out."""
ASKED = 0.35
"""Of greetings: the share that a message asks for, as some apps do, in place of an event."""


def event(known: Sequence[Fact], random: Random, *, held_out: bool) -> Saying:
    """Any event. A greeting takes up one of the known facts; those that are held out have wordings of their own."""
    [kind] = random.choices(list(_KINDS), weights=list(_KINDS.values()))
    if kind == "login":
        reply, goal = _greeting(known, random, held_out=held_out)
        return back(Notice(reply, goal), random, held_out=held_out)
    if kind == "upload":
        file = _one_of(_SAY["upload"]["x"], random, held_out=held_out)
        reply = _one_of(_SAY["upload"]["answers"], random, held_out=held_out).format(x=file)
        return Saying(file, Notice(reply, file), event=kind)
    groups = _SAY[kind].get("groups", ())
    if groups and random.random() < GROUPED:
        group = random.choice(groups)
        x = _one_of(group["x"], random, held_out=held_out)
        text, reply = (
            form.format(x=x, X=x[:1].upper() + x[1:])
            for form in _one_of(group["forms"], random, held_out=held_out)
        )
        return Saying(text, Notice(reply, x), event=kind)
    text, reply = _one_of(_SAY[kind]["pairs"], random, held_out=held_out)
    return Saying(text, Notice(reply), event=kind)


def back(notice: Notice, random: Random, *, held_out: bool = False) -> Saying:
    """The user is back and says nothing: a login, or a message that asks for the first word."""
    if random.random() < ASKED:
        return Saying(_one_of(_SAY["greeting"]["asked"], random, held_out=held_out), notice)
    return Saying("", notice, event="login")


def opening(random: Random, *, held_out: bool = False) -> str:
    forms: Sequence[str] = _SAY["greeting"]["openings"]
    return _one_of(forms, random, held_out=held_out)


def _greeting(known: Sequence[Fact], random: Random, *, held_out: bool) -> tuple[str, str]:
    """What is said, and what it takes up."""
    about = _SAY["greeting"]["about"]
    name = next((fact.value for fact in known if fact.kind.word == "name"), "")
    facts = [fact for fact in known if fact.kind.value in about and fact.kind.word != "name"]
    hello = opening(random, held_out=held_out)
    if name:
        hello = f"{hello.removesuffix('!')}, {name}!"
    if facts:
        fact = random.choice(facts)
        form = _one_of(about[fact.kind.value], random, held_out=held_out)
        reply = f"{hello} {fact.filled(form)}"
        return reply, fact.value if fact.value in reply else ""
    if name:
        return f"{hello} How are you?", name
    return _one_of(_SAY["greeting"]["plain"], random, held_out=held_out), ""


def _one_of(forms: Sequence[T], random: Random, *, held_out: bool) -> T:
    kept = len(forms) - len(forms) // 5
    return random.choice(forms[kept:] if held_out else forms[:kept])
