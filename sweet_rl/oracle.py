"""What an agent's message is worth in a generated task, by who knows its hidden constants.

A question is worth what the best play after it comes to; an answer, what share of its constants is right.
A critic that was trained on outcomes alone should order messages as this does: see `agreement`. What a success
rate doesn't say, why it isn't higher, `behaviour` does: the kind of each message, and how collaborations end.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import isclose
from typing import Literal

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.families import Family, SlotValue
from memserver_evals.colbench.backend.rules import MAX_TURNS, answer_in, gives_answer
from memserver_evals.colbench.backend.slot_human import SlotTask
from sweet_rl.trajectories import ChatMessage, Pair, Ranked, Trajectory

DISCOUNT = 0.95
"""For each further message of the agent: asking what is known already, or idly, is worth less."""
PARTLY = 0.5
"""What an answer is worth at most that isn't right as a whole."""
Kind = Literal["question", "repeated", "idle", "right", "early", "wrong", "other code", "no answer"]
"""Of a message: asks what isn't known, what is, or nothing that the human knows; an answer with the right
constants, one before all are known, one with a wrong constant though all are known, code of another shape;
or the last message without an answer."""
ENDS = ("solved", "early", "guessed", "wrong", "other code", "no answer")
"""Of a collaboration: all tests passed, or the kind of its answer. An early answer in the last message that
there was is `guessed`."""
Slots = Mapping[str, SlotTask]
_Known = set[str]


def values_of(
    task: SlotTask, before: Sequence[ChatMessage], candidates: Iterable[str]
) -> tuple[float, ...]:
    """What each of several next messages is worth, 0 to 1."""
    asked = [message["content"] for message in before if message["role"] == "assistant"]
    known = task.known_after(asked)
    left = (task.example.max_turns or MAX_TURNS) - len(asked)
    return tuple(_value(task, known, len(asked), left, text) for text in candidates)


def _value(task: SlotTask, known: _Known, said: int, left: int, text: str) -> float:
    """Of one message, when the agent has said so many and has so many left, this one among them."""
    if gives_answer(text) or left <= 1:
        return _worth(share_right(task, answer_in(text)) or 0, 0)
    slot = task.answer(text, said + 1, known).slot
    found = known | ({slot.name} if slot else set())
    missing = len(task.family.slots) - len(found)
    questions = min(missing, left - 2)
    share = (len(found) + questions) / len(task.family.slots)
    return _worth(share, questions + 1)


def _worth(share: float, more: int) -> float:
    return (1.0 if isclose(share, 1) else PARTLY * share) * DISCOUNT**more


def share_right(task: SlotTask, code: str) -> float | None:
    found = _shape(task.family, task.noun).search(_spaced(code))
    if found is None:
        return None
    right = [_same(found[_group(name)], value) for name, value in task.slots.items()]
    return sum(right) / len(right)


@lru_cache(maxsize=1024)
def _shape(family: Family, noun: str) -> re.Pattern[str]:
    marks = {slot.name: f"slot{number}x" for number, slot in enumerate(family.slots)}
    shape = re.escape(_spaced(family.code(noun, marks)))
    for name, mark in marks.items():
        shape = shape.replace(f"'{mark}'", rf"(?P<{_group(name)}>'[^']*'|\"[^\"]*\"|[\w.]+)", 1)
        shape = shape.replace(f"'{mark}'", rf"(?P={_group(name)})")
    return re.compile(shape)


def _group(name: str) -> str:
    return name.replace(" ", "_")


def _spaced(code: str) -> str:
    return " ".join(code.split())


def _same(text: str, value: SlotValue) -> bool:
    return text.strip("'\"") == str(value) and isinstance(value, str) == (text[0] in "'\"")


def agreement(ranked: Iterable[Ranked]) -> JsonObject:
    """How a critic's order is like the oracle's.

    Returns:
        `pairs`: of candidates of one state that the oracle tells apart; `agreement`: the share of them that
        the critic orders alike (ties count half; chance is .5); `best`: the share of states in which the
        critic's first is one of the oracle's first; `chance_of_best`: that of a draw. None without pairs.
    """
    pairs, alike, states, best, drawn = 0, 0.0, 0, 0, 0.0
    for record in ranked:
        if record.oracle is None or len(set(record.oracle)) == 1:
            continue
        both = list(zip(record.oracle, record.advantages, strict=True))
        found = list(orders(record.oracle, record.advantages))
        pairs, alike = pairs + len(found), alike + sum(found)
        states += 1
        top = max(record.oracle)
        best += max(both, key=lambda one: one[1])[0] == top
        drawn += record.oracle.count(top) / len(record.oracle)
    return {
        "pairs": pairs,
        "states": states,
        "agreement": alike / pairs if pairs else None,
        "best": best / states if states else None,
        "chance_of_best": drawn / states if states else None,
    }


def orders(oracle: Sequence[float], scores: Sequence[float]) -> Iterator[float]:
    """For each two that the oracle tells apart whether they are in its order: 1, 0, or .5 for a tie."""
    for (a, x), (b, y) in combinations(zip(oracle, scores, strict=True), 2):
        if a != b:
            yield 0.5 if x == y else float((a > b) == (x > y))


def behaviour(plays: Iterable[Trajectory], slots: Slots) -> JsonObject:
    """How some collaborations went."""
    counts: Counter[str] = Counter()
    number = 0
    for played in plays:
        task, number = slots[played.task], number + 1
        kinds = [
            kind_of(task, played.before(turn), played.said(turn)) for turn in range(played.turns)
        ]
        counts.update(kind for kind in kinds if kind in {"repeated", "idle"})
        counts[_end(task, played, kinds[-1])] += 1
    names = (*ENDS, "repeated", "idle")
    return {name: counts[name] / number if number else None for name in names}


def kind_of(task: SlotTask, before: Sequence[ChatMessage], text: str) -> Kind:
    asked = [message["content"] for message in before if message["role"] == "assistant"]
    known = task.known_after(asked)
    answers = gives_answer(text)
    if answers or _is_last(task, len(asked)):
        return _kind_of_answer(task, known, text) if answers else "no answer"
    slot = task.answer(text, len(asked) + 1, known).slot
    if slot is None:
        return "idle"
    return "repeated" if slot.name in known else "question"


def mistakes(ranked: Iterable[Ranked], slots: Slots) -> JsonObject:
    """How often a critic puts a better kind of message before a worse one, in the same state.

    Returns:
        By "better over worse" (as the oracle has it): `pairs`, and `right`, the share that the critic
        orders alike (ties count half); the most frequent first.
    """
    pairs: Counter[str] = Counter()
    right: defaultdict[str, float] = defaultdict(float)
    for record in ranked:
        if record.oracle is None:
            continue
        task = slots[record.task]
        kinds = [kind_of(task, record.messages, text) for text in record.candidates]
        both = zip(kinds, record.oracle, record.advantages, strict=True)
        for (kind, a, x), (other, b, y) in combinations(both, 2):
            if a != b:
                name = f"{kind} over {other}" if a > b else f"{other} over {kind}"
                pairs[name] += 1
                right[name] += 0.5 if x == y else float((a > b) == (x > y))
    return {
        name: {"pairs": count, "right": right[name] / count} for name, count in pairs.most_common()
    }


def judge(pairs: Iterable[Pair], slots: Slots) -> JsonObject:
    """What the oracle says of pairs of single messages: shares that are `right`, `equal` and `inverted`."""
    found: Counter[str] = Counter()
    for pair in pairs:
        said = (pair.chosen[0]["content"], pair.rejected[0]["content"])
        chosen, rejected = values_of(slots[pair.task], pair.prompt, said)
        found["right" if chosen > rejected else "equal" if chosen == rejected else "inverted"] += 1
    return {name: found[name] / found.total() for name in ("right", "equal", "inverted") if found}


def _end(task: SlotTask, played: Trajectory, last: Kind) -> str:
    if played.reward == 1:
        return "solved"
    if last == "early" and _is_last(task, played.turns - 1):
        return "guessed"
    return last if last in ENDS else "other code"  # right by its constants, and yet it fails


def _kind_of_answer(task: SlotTask, known: _Known, text: str) -> Kind:
    share = share_right(task, answer_in(text))
    if share is None:
        return "other code"
    if share == 1:
        return "right"
    return "early" if len(known) < len(task.family.slots) else "wrong"


def _is_last(task: SlotTask, said: int) -> bool:
    return said + 1 >= (task.example.max_turns or MAX_TURNS)
