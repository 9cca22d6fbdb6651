"""What agents do in generated tasks: the kind of each message, how collaborations end, what a critic mistakes.

A success rate doesn't say why it isn't higher. This does, since a generated task's constants are known.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.generator import SlotTask
from memserver_evals.colbench.backend.rules import MAX_TURNS, answer_in, gives_answer
from memserver_evals.colbench.backend.slot_human import asked_for
from sweet_rl.oracle import share_right, values_of
from sweet_rl.trajectories import ChatMessage, Pair, Ranked, Trajectory

Kind = Literal["question", "repeated", "idle", "right", "early", "wrong", "other code", "no answer"]
"""Of a message: asks what isn't known, what is, or nothing that the human knows; an answer with the right
constants, one before all are known, one with a wrong constant though all are known, code of another shape;
or the last message without an answer."""
ENDS = ("solved", "early", "guessed", "wrong", "other code", "no answer")
"""Of a collaboration: all tests passed, or the kind of its answer. An early answer in the last message that
there was is `guessed`."""
Slots = Mapping[str, SlotTask]

_Known = set[str]


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
    """Of a message."""
    asked = [message["content"] for message in before if message["role"] == "assistant"]
    known = {slot.name for each in asked if (slot := asked_for(task.family.slots, each))}
    answers = gives_answer(text)
    if answers or _is_last(task, len(asked)):
        return _kind_of_answer(task, known, text) if answers else "no answer"
    slot = asked_for(task.family.slots, text)
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


def judged(pairs: Iterable[Pair], slots: Slots) -> JsonObject:
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
