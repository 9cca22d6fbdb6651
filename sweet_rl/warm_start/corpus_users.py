"""People of the corpus as users of an agent: who come back and ask or are greeted, live on, confide, or have things looked up."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from uuid import UUID

from sweet_rl.warm_start import intents
from sweet_rl.warm_start.corpus import AGENT, Passage, Written
from sweet_rl.warm_start.events import back, opening
from sweet_rl.warm_start.reading import LONGEST_SAID, turn_lines
from sweet_rl.warm_start.small_talk import SmallTalk
from sweet_rl.warm_start.wordings import read_data

_SAY = read_data("wordings")["people"]

WINDOWS = (1280, 1536, 2048, 2048, 2048, 3072, 4096, 8192)
SMALL_WINDOWS = (1280, 1280, 1536, 2048)
_QUESTION = re.compile(r"(?<![^ ])[A-Z][^.!?]{11,}\?")
GREETED = 4
"""Turns after a greeting."""
PAIRS = 60
SPARED = 0.5
"""Of the questions without an answer: a model that admits too much gives up where it could read."""


def returning(talk: Written, chat: Sequence[SmallTalk], random: Random) -> intents.User:
    past = _past(talk, len(talk.turns))
    sayings = _questions(talk, chat, past[-1].at, random)
    task = random.choice(_SAY["returning"]) if random.random() < 0.5 else ""
    return intents.User(
        past, tuple(sayings), random.choice(WINDOWS), "working_context_first", None, task=task
    )


def confiding(aside: Written, chat: Sequence[SmallTalk], random: Random) -> intents.User:
    """Mentions all of an aside to the agent itself, chats until it is out of sight, and asks days later."""
    lines, sayings = turn_lines(aside), []
    for said, reply in zip(range(0, len(lines), 2), range(1, len(lines), 2), strict=True):
        notes, at = aside.turns[said].notes, lines[said].at
        answer = intents.Converse(_short(lines[reply].text), notes)
        sayings.append(intents.Saying(lines[said].text, answer, at))
        if random.random() < 0.3:
            sayings.append(_small(random.choice(chat), at + timedelta(minutes=1)))
    at = lines[-1].at
    for small in random.choices(chat, k=random.randint(4, 14)):
        at += timedelta(minutes=random.randint(1, 9))
        sayings.append(_small(small, at))
    sayings += _questions(aside, chat, at, random)
    return intents.User(
        (), tuple(sayings), random.choice(SMALL_WINDOWS), "working_context_first", None
    )


def recalling(aside: Written, chat: Sequence[SmallTalk], random: Random) -> intents.User:
    """As one who returns; so little was said in an aside that small talk has to come after it."""
    user = returning(aside, chat, random)
    past, at = list(user.past), user.past[-1].at
    for small in random.choices(chat, k=random.randint(6, 24)):
        at += timedelta(minutes=2)
        past += [intents.Past("user", small.text, at), intents.Past("assistant", small.reply, at)]
    return replace(user, past=tuple(past))


def _questions(
    talk: Written, chat: Sequence[SmallTalk], since: datetime, random: Random
) -> list[intents.Saying]:
    at = since + timedelta(days=random.randint(4, 70), minutes=random.randint(0, 600))
    sayings = []
    for question in random.sample(talk.questions, min(len(talk.questions), random.randint(4, 7))):
        if question.kind == "unanswerable" and random.random() < SPARED:
            continue
        if random.random() < 0.25:
            sayings.append(_small(random.choice(chat), at))
            at += timedelta(minutes=random.randint(1, 9))
        sayings.append(intents.Saying(question.text, _remember(talk, question), at))
        at += timedelta(minutes=random.randint(1, 9))
    return sayings


def _small(talk: SmallTalk, at: datetime) -> intents.Saying:
    return intents.Saying(talk.text, intents.Chat(talk.reply), at)


def living(talk: Written, chat: Sequence[SmallTalk], random: Random) -> intents.User:
    last = len(talk.sessions) - 1
    first = next(number for number, turn in enumerate(talk.turns) if turn.session == last)
    while talk.turns[first].speaker == "assistant":
        first += 1
    past, lines = _past(talk, first), turn_lines(talk)
    sayings, at, seen = [], lines[first].at, " ".join(each.text for each in past)
    for number in range(first, len(talk.turns)):
        turn, at = talk.turns[number], lines[number].at
        if turn.speaker == "assistant":
            continue
        follows = talk.turns[number + 1].text if number + 1 < len(talk.turns) else "I see."
        reply = _short(follows)
        sayings.append(intents.Saying(turn.text, intents.Converse(reply, turn.notes), at))
        seen += f" {turn.text} {reply}"
    asked = [
        each
        for each in talk.questions
        if each.kind != "date" and (not each.evidence or each.evidence in seen)
    ]
    for question in random.sample(asked, min(len(asked), random.randint(3, 5))):
        if random.random() < 0.4:
            at += timedelta(minutes=3)
            sayings.append(_small(random.choice(chat), at))
        at += timedelta(minutes=random.randint(1, 20))
        sayings.append(intents.Saying(question.text, _remember(talk, question), at))
    return intents.User(
        past, tuple(sayings), random.choice(SMALL_WINDOWS), "working_context_first", None
    )


def greeted(talk: Written, random: Random) -> intents.User | None:
    """One who comes back and is asked after, as at the beginning of a session of the talk; None if there is none such.

    What the other one has lived through meanwhile is no greeting to learn: an agent would make it up.
    """
    starts = [
        (number, questions)
        for number, (before, turn) in enumerate(pairwise(talk.turns), 1)
        if turn.speaker == "assistant" and turn.session != before.session
        if (questions := " ".join(_QUESTION.findall(turn.text)))
    ]
    if not starts:
        return None
    first, asked = random.choice(starts)
    sayings = [back(intents.Notice(_short(f"{opening(random)} {asked}")), random)]
    for said, follows in pairwise(talk.turns[first + 1 : first + 1 + GREETED]):
        if (said.speaker, follows.speaker) == ("user", "assistant"):
            reply = intents.Converse(_short(follows.text), said.notes)
            sayings.append(intents.Saying(said.text, reply))
    window = random.choice(SMALL_WINDOWS)
    return intents.User(_past(talk, first), tuple(sayings), window, "working_context_first", None)


def consulting(shelf: Sequence[Passage], asked: Sequence[Passage], random: Random) -> intents.User:
    at = datetime(2026, 2, 1, 9, tzinfo=UTC) + timedelta(days=random.randint(0, 300))
    quoted = random.random() < 0.5
    sayings = []
    for passage in asked:
        question = random.choice(passage.questions)
        sayings.append(intents.Saying(question.text, intents.Consult(question, quoted), at))
        at += timedelta(minutes=random.randint(1, 9))
    documents = tuple(
        f"{each.title}. {each.text}" if random.random() < 0.5 else each.text for each in shelf
    )
    task = random.choice(_SAY["quoted"] if quoted else _SAY["consulting"])
    window = random.choice(WINDOWS)
    return intents.User(
        (), tuple(sayings), window, "working_context_first", None, task=task, documents=documents
    )


def following(random: Random) -> intents.User:
    at = datetime(2026, 2, 1, 9, tzinfo=UTC)
    keys = [_key(random) for _ in range(PAIRS)]
    values = {key: _key(random) for key in keys}
    sayings = []
    free = list(keys)
    random.shuffle(free)
    for level in random.sample((0, 1, 2, 3, 4), 3):
        chain = [free.pop() for _ in range(level + 1)]
        values.update(pairwise(chain))
        whole = (*chain, values[chain[-1]])
        sayings.append(
            intents.Saying(
                random.choice(_SAY["following"]).format(k=chain[0]), intents.Follow(whole), at
            )
        )
        at += timedelta(minutes=4)
    form = random.choice(('"{k}": "{v}"', '"{k}": "{v}"', "{k} = {v}", "{k}: {v}"))
    documents = tuple(form.format(k=key, v=value) for key, value in values.items())
    task = random.choice(_SAY["keys"])
    window = random.choice((2048, 2048, 3072, 4096))
    return intents.User(
        (), tuple(sayings), window, "working_context_first", None, task=task, documents=documents
    )


def users(
    talks: Sequence[Written],
    shelves: Sequence[Sequence[Passage]],
    chat: Sequence[SmallTalk],
    random: Random,
    *,
    each: int,
) -> Iterator[intents.User]:
    everything = [passage for shelf in shelves for passage in shelf]
    for _ in range(each):
        for talk in talks:
            alone = talk.assistant == AGENT
            yield (recalling if alone else returning)(talk, chat, random)
            yield (confiding if alone else living)(talk, chat, random)
            if (user := greeted(talk, random)) is not None:
                yield user
        for shelf in shelves:
            others = random.sample(everything, min(len(everything), random.randint(4, 20)))
            yield consulting(
                list(dict.fromkeys([*shelf, *others])),
                random.sample(shelf, min(3, len(shelf))),
                random,
            )
        for _ in range(len(talks) // 5 + 1):
            yield following(random)


def _past(talk: Written, until: int) -> tuple[intents.Past, ...]:
    return tuple(
        intents.Past(line.speaker, turn.text, line.at, fact=bool(turn.notes), notes=turn.notes)  # type: ignore[arg-type]
        for line, turn in list(zip(turn_lines(talk), talk.turns, strict=True))[:until]
    )


def _remember(talk: Written, question: object) -> intents.Remember:
    place = talk.place(question)  # type: ignore[arg-type]
    if place is None:
        return intents.Remember(question, "")  # type: ignore[arg-type]
    turn = talk.turns[place]
    kept = tuple(note.rpartition(" -> ")[2] for note in turn.notes)
    return intents.Remember(question, turn.speaker, kept)  # type: ignore[arg-type]


def _short(text: str) -> str:
    """The first sentences of a reply, as long as a small model's may be."""
    if len(text) <= LONGEST_SAID:
        return text
    ends = [at + 1 for at, letter in enumerate(text[:LONGEST_SAID]) if letter in ".!?"]
    return text[: ends[-1]] if ends else f"{text[: LONGEST_SAID - 1].rsplit(' ', 1)[0]}…"


def _key(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))
