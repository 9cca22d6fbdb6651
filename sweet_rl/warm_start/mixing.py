"""What a training learns from, of several folders of chains: no kind of lesson may drown in another.

- Chains in which an agent of people searches, looks up or follows come twice: most of its turns are alerts and small talk.
- Reading is a sample, of which few give up; with more a model gives up where it could answer.
- A conversation in which a noted date is asked for comes many times, each with another date. There were 37 in 34,565, and
  a birthday's date was answered in .86 of the README's conversations.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from sweet_rl.warm_start.chains import Chain, read_chains, write_chains
from sweet_rl.warm_start.facts import MONTHS, date_forms
from sweet_rl.warm_start.reading import CANT_FIND

TRAINING = "train"
ACTING = {"remember", "follow", "consult"}
READING, GIVING_UP = 20_000, 0.07
DATES = 32
_MONTH = "|".join(MONTHS)
_DATE = re.compile(rf"(?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?|\d{{1,2}} (?:{_MONTH})")


def mix(folders: Sequence[Path], out: Path, seed: int = 1) -> dict[str, int]:
    """Write `train.jsonl.gz` and the tests of all folders into one; returns how many chains of each kind it has."""
    random = Random(seed)
    chains = [
        chain
        for folder in folders
        for file in sorted(folder.glob(f"{TRAINING}*.jsonl.gz"))
        for chain in read_chains(file)
    ]
    parts = {
        "all but reading": [chain for chain in chains if "read" not in kinds(chain)],
        "acting again": [chain for chain in chains if kinds(chain) & ACTING],
        "reading": _reading([chain for chain in chains if "read" in kinds(chain)], random),
        "other dates": [
            varied for chain in chains for varied in with_other_dates(chain, DATES, random)
        ],
    }
    mixed = [chain for part in parts.values() for chain in part]
    random.shuffle(mixed)
    out.mkdir(parents=True, exist_ok=True)
    write_chains(out / f"{TRAINING}.jsonl.gz", mixed)
    for folder in folders:
        for file in folder.glob("*.jsonl.gz"):
            if not file.name.startswith(TRAINING):
                (out / file.name).write_bytes(file.read_bytes())
    return {name: len(part) for name, part in parts.items()}


def kinds(chain: Chain) -> set[str]:
    return {lesson.kind for lesson in chain.lessons}


def with_other_dates(chain: Chain, count: int, random: Random) -> Iterable[Chain]:
    """The chain so many times with other dates in place of those that are asked for; none if it asks for no date."""
    dates = {
        lesson.goal
        for lesson in chain.lessons
        if lesson.kind == "ask" and _DATE.fullmatch(lesson.goal)
    }
    for _ in range(count if dates else 0):
        changed = chain
        for date in sorted(dates):
            changed = _exchanged(changed, date, _another(date, random))
        yield changed


def _another(date: str, random: Random) -> str:
    """A date for training, in the same form."""
    wanted = re.sub(r"[A-Za-z]+", "a", re.sub(r"\d+", "1", date))
    while True:
        for form in date_forms("train", random):
            if form != date and re.sub(r"[A-Za-z]+", "a", re.sub(r"\d+", "1", form)) == wanted:
                return form


def _exchanged(chain: Chain, old: str, new: str) -> Chain:
    return Chain(
        tuple(
            {**message, "content": message["content"].replace(old, new)}
            for message in chain.messages
        ),
        tuple(replace(each, goal=each.goal.replace(old, new)) for each in chain.lessons),
    )


def _reading(chains: Sequence[Chain], random: Random) -> list[Chain]:
    sides: dict[bool, list[Chain]] = {False: [], True: []}
    for chain in chains:
        said = (chain.messages[lesson.message]["content"] for lesson in chain.lessons)
        sides[any(CANT_FIND in text for text in said)].append(chain)
    shares = {False: 1 - GIVING_UP, True: GIVING_UP}
    return [
        chain
        for given_up, found in sides.items()
        for chain in random.sample(found, min(len(found), round(READING * shares[given_up])))
    ]
