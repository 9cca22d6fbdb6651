"""Synthetic users: what a person says in a conversation, and what it asks of the agent.

A user tells facts among small talk, changes and takes back some, asks about them, has notes kept, and
comes back to what was said weeks ago. What the right thing to do is in each
case belongs to `teacher`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TypeVar

from sweet_rl.warm_start import intents
from sweet_rl.warm_start.events import event
from sweet_rl.warm_start.facts import MONTHS, Fact, Kind, draw, dressed, lasting, new_fact, passing
from sweet_rl.warm_start.small_talk import SmallTalk
from sweet_rl.warm_start.wordings import read_data

T = TypeVar("T")
_SAY = read_data("wordings")["users"]
ASK_AFTER_A_CHANGE = 0.4
"""While the old value is still in sight among the messages, and wrong."""
WINDOWS = (1280, 1280, 1536, 1536, 2048)
"""Tokens of the agents: small ones, so that conversations of this length are evicted."""


@dataclass
class _Making:
    random: Random
    side: intents.Holdout
    talk: list[SmallTalk]
    now: datetime
    sayings: list[intents.Saying] = field(default_factory=list)
    known: dict[str, Fact] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    unknown: dict[str, Fact] = field(default_factory=dict)
    told_before: list[Fact] = field(default_factory=list)
    notes: list[intents.Note] = field(default_factory=list)
    past: list[intents.Past] = field(default_factory=list)

    def say(self, text: str, intent: intents.Intent) -> None:
        self.sayings.append(intents.Saying(text, intent))

    def choose(self, forms: Sequence[T]) -> T:
        return self.random.choice(forms)

    def pick(self, forms: Sequence[str]) -> str:
        """A wording; the last one is for tests."""
        return forms[-1] if self.side.wording else self.random.choice(forms[:-1])


def make_user(
    random: Random, side: intents.Holdout, talk: list[SmallTalk], now: datetime
) -> intents.User:
    making = _Making(random, side, talk, now)
    if random.random() < 0.4:
        _make_past(making)
    opening = random.choices((_introduce, _ask_for_the_name, _ask_all, None), (50, 8, 12, 30))[0]
    if opening is not None:
        opening(making)
    for _ in range(random.randint(6, 26)):
        action = random.choices(list(_ACTIONS), weights=list(_ACTIONS.values()))[0]
        action(making)
    return intents.User(
        past=tuple(making.past),
        sayings=tuple(making.sayings),
        window=random.choice(WINDOWS),
        order="working_context_first" if random.random() < 0.65 else "working_context_last",
        persona=random.choice(_SAY["personas"]) if random.random() < 0.3 else None,
    )


def _chat(making: _Making) -> None:
    talk = making.choose(making.talk)
    making.say(talk.text, intents.Chat(talk.reply))


def _introduce(making: _Making) -> None:
    _tell(making, count=making.choose((1, 2, 2)), first=_names())


def _ask_for_the_name(making: _Making) -> None:
    """The user asks for their own name, which the agent can't know: its own stands in its instructions."""
    _ask_unknown(making, _names())


def _names() -> list[Kind]:
    return [kind for kind in lasting() if kind.word == "name"]


def _tell(making: _Making, count: int = 1, first: Sequence[Kind] = ()) -> None:
    facts: list[Fact] = []
    for _ in range(count):
        kinds = lasting() if making.random.random() < 0.75 else passing()
        fact = _fresh(making, first if first and not facts else kinds)
        if fact is not None:
            facts.append(fact)
            making.known[fact.kind.label] = fact
    if facts:
        text = _joined([_told(making, fact) for fact in facts], making.random)
        making.say(text, intents.Tell(tuple(facts)))


def _tell_and_ask(making: _Making) -> None:
    asked, fact = _some_known(making), _fresh(making, lasting())
    if asked is None or fact is None:
        _tell(making)
    else:
        making.known[fact.kind.label] = fact
        text = f"{fact.filled(_form(making, fact.kind))} {_question(making, asked)}"
        making.say(text, intents.Tell((fact,), intents.Ask(asked)))


def _tell_again(making: _Making) -> None:
    if (fact := _some_known(making)) is not None:
        making.say(_told(making, fact), intents.Tell((fact,)))


def _change(making: _Making) -> None:
    old = _some_known(making)
    if old is None:
        return _tell(making)
    try:
        new = new_fact(old.kind, making.side.values, making.random, but=old.value)
    except ValueError:
        return _chat(making)
    making.known[new.kind.label] = new
    opening = making.choose(_SAY["changed"])
    making.say(opening + new.filled(_form(making, new.kind)), intents.Change(old, new))
    if making.random.random() < ASK_AFTER_A_CHANGE:
        making.say(_question(making, new), intents.Ask(new))
    return None


def _forget(making: _Making) -> None:
    if (fact := _some_known(making)) is None:
        _tell(making)
    else:
        del making.known[fact.kind.label]
        making.gone.add(fact.kind.label)
        form = making.choose(_SAY["forget"])
        making.say(form.format(label=fact.kind.label.lower()), intents.Forget(fact))


def _ask(making: _Making) -> None:
    if (fact := _some_known(making)) is None:
        _ask_unknown(making)
    else:
        making.say(_question(making, fact), intents.Ask(fact))


def _ask_unknown(making: _Making, kinds: Sequence[Kind] = ()) -> None:
    fact = _fresh(making, kinds or lasting())
    if fact is not None:
        making.unknown[fact.kind.label] = fact
        making.say(_question(making, fact), intents.Ask(fact, known=False))


def _tell_what_was_asked(making: _Making) -> None:
    if not making.unknown:
        _tell(making)
    else:
        label = making.choose(list(making.unknown))
        fact = making.known[label] = making.unknown.pop(label)
        making.say(_told(making, fact), intents.Tell((fact,)))


def _ask_past(making: _Making) -> None:
    if not making.told_before:
        _tell(making)
    else:
        fact = making.choose(making.told_before)
        making.say(_question(making, fact), intents.Ask(fact))


def _ask_all(making: _Making) -> None:
    forms = _SAY["everything"]
    form = making.choose(forms[-1:] if making.side.wording else forms[:-1])
    making.say(form, intents.AskAll(tuple(making.known.values())))


def _keep(making: _Making) -> None:
    texts = read_data("notes")
    topic = making.choose(texts["held_out"] if making.side.kinds else texts["topics"])
    things = making.random.sample(texts["things"], making.random.randint(3, 6))
    title = draw("town", "", making.side.values, making.random)
    note = intents.Note(topic, title, ", ".join(things))
    making.notes.append(note)
    making.say(note.filled(making.pick(texts["tell"])), intents.Keep(note))


def _look_up(making: _Making) -> None:
    if not making.notes:
        _keep(making)
    else:
        note = making.choose(making.notes)
        making.say(note.filled(making.pick(read_data("notes")["ask"])), intents.LookUp(note))


def _ask_day(making: _Making) -> None:
    days = {past.at.date() for past in making.past if past.role == "user"}
    if not days:
        return _chat(making)
    day = making.choose(sorted(days))
    month, words = MONTHS[day.month - 1], "yesterday"
    if day != making.now.date() - timedelta(days=1):
        forms = (
            f"{day.isoformat()}",
            f"{month} {day.day}, {day.year}",
            f"{day.day} {month} {day.year}",
        )
        words = f"on {making.choose(forms)}"
    form = making.pick(_SAY["days"])
    return making.say(form.format(day=words), intents.AskDay(day.isoformat(), words))


def _happens(making: _Making) -> None:
    """An event; a greeting takes up what is noted, which is what lasts."""
    known = [fact for fact in making.known.values() if fact.kind in lasting()]
    making.sayings.append(event(known, making.random, held_out=making.side.wording))


_ACTIONS: dict[Callable[[_Making], None], float] = {
    _chat: 34,
    _tell: 20,
    partial(_tell, count=2): 9,
    _tell_and_ask: 2,
    _tell_again: 2,
    _change: 7,
    _forget: 3,
    _ask: 14,
    _ask_unknown: 9,
    _tell_what_was_asked: 4,
    _ask_past: 8,
    _ask_all: 4,
    _keep: 3,
    _look_up: 4,
    _ask_day: 4,
    _happens: 9,
}
"""What a user does next, with its weight."""


def _make_past(making: _Making) -> None:
    """Messages of the last weeks, which no agent has taken notes of."""
    random = making.random
    at = making.now - timedelta(days=random.randint(3, 60), minutes=random.randint(0, 900))
    for _ in range(random.randint(4, 30)):
        text, answer, fact = _past_saying(making)
        making.past.append(intents.Past("user", text, at, fact))
        making.past.append(intents.Past("assistant", answer, at + timedelta(seconds=20)))
        at = min(at + _pause(random), making.now - timedelta(hours=20))


def _past_saying(making: _Making) -> tuple[str, str, bool]:
    random = making.random
    chance = random.random()
    kinds, found = (lasting(), None) if chance < 0.2 else (passing(), None)
    if chance < 0.35:
        found = _fresh(making, kinds)
    if found is None:
        talk = random.choice(making.talk)
        return talk.text, talk.reply, False
    making.told_before.append(found)
    return _told(making, found), random.choice(found.kind.comment or _SAY["comments"]), True


def _pause(random: Random) -> timedelta:
    if random.random() < 0.7:
        return timedelta(minutes=random.randint(1, 30))
    return timedelta(days=random.randint(1, 4), minutes=random.randint(0, 300))


def _fresh(making: _Making, kinds: Sequence[Kind]) -> Fact | None:
    """A fact of a kind that has not come up yet."""
    used = {fact.kind.label for fact in making.told_before}
    used |= making.known.keys() | making.gone | making.unknown.keys()
    fitting = [
        kind for kind in kinds if kind.held_out == making.side.kinds and kind.label not in used
    ]
    if not fitting:
        return None
    families: dict[tuple[str, ...], list[Kind]] = {}
    for kind in fitting:
        families.setdefault(kind.tell.forms, []).append(kind)
    weights = [len(family) ** 0.5 for family in families.values()]
    [family] = making.random.choices(list(families.values()), weights=weights)
    return new_fact(making.choose(family), making.side.values, making.random)


def _some_known(making: _Making) -> Fact | None:
    return making.choose(list(making.known.values())) if making.known else None


def _joined(texts: Sequence[str], random: Random) -> str:
    """Several things said at once, in sentences of their own or in one."""
    if len(texts) == 1 or random.random() < 0.4:
        return " ".join(texts)
    first, second = texts[0].rstrip(".:) "), texts[1]
    if second.split()[0] not in {"I", "I'm", "I've"}:
        second = second[:1].lower() + second[1:]
    return f"{first}, and {second}" if random.random() < 0.7 else f"{first} and {second}"


def _form(making: _Making, kind: Kind) -> str:
    return kind.tell.pick(making.side.wording, making.random)


def _told(making: _Making, fact: Fact) -> str:
    return dressed(_form(making, fact.kind), fact, making.random)


def _question(making: _Making, fact: Fact) -> str:
    return dressed(fact.kind.ask.pick(making.side.wording, making.random), fact, making.random)
