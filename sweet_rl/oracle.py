"""What an agent's message is worth in a generated task, by who knows its hidden constants.

A question is worth what the best play after it comes to; an answer, what share of its constants is right.
A critic that was trained on outcomes alone should order messages as this does: see `agreement`.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import isclose

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.families import Family, SlotValue
from memserver_evals.colbench.backend.generator import SlotTask
from memserver_evals.colbench.backend.rules import MAX_TURNS, answer_in, gives_answer
from memserver_evals.colbench.backend.slot_human import asked_for
from sweet_rl.trajectories import ChatMessage, Ranked, Trajectory

DISCOUNT = 0.95
"""For each further message of the agent: asking what is known already, or idly, is worth less."""
PARTLY = 0.5
"""What an answer is worth at most that isn't right as a whole."""


def values_of(
    task: SlotTask, before: Sequence[ChatMessage], candidates: Iterable[str]
) -> tuple[float, ...]:
    """What each of several next messages is worth, 0 to 1."""
    asked = [message["content"] for message in before if message["role"] == "assistant"]
    known = {slot.name for text in asked if (slot := asked_for(task.family.slots, text))}
    left = (task.example.max_turns or MAX_TURNS) - len(asked)
    return tuple(_value(task, known, left, text) for text in candidates)


def gains_of(task: SlotTask, played: Trajectory) -> tuple[float, ...]:
    """How much more each of the agent's messages was worth than one that asks nothing."""
    gains = []
    for turn in range(played.turns):
        said, idle = values_of(task, played.before(turn), (played.said(turn), ""))
        gains.append(said - idle)
    return tuple(gains)


def _value(task: SlotTask, known: set[str], left: int, text: str) -> float:
    """Of one message, when the agent has so many left, this one among them."""
    if gives_answer(text) or left <= 1:
        return _worth(share_right(task, answer_in(text)) or 0, 0)
    slot = asked_for(task.family.slots, text)
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
        for (a, x), (b, y) in combinations(both, 2):
            if a != b:
                pairs += 1
                alike += 0.5 if x == y else float((a > b) == (x > y))
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
