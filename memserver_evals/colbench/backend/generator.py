"""Makes small backend tasks: families x nouns, with hidden slots that each decide a test.

The validation and test splits are of combinations of family and noun that training never sees. A task
depends on seed, split and number alone. Its reference is run while it is made: a task is kept only when a
change of any slot, to its neighbours and to values drawn, changes what some test gives.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Literal

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.families import FAMILIES, NOUNS, Family, Slots, SlotValue
from memserver_evals.colbench.backend.slot_human import SlotTask

Split = Literal["train", "validation", "test"]
_SHARES: Mapping[Split, float] = {"train": 0.7, "validation": 0.85, "test": 1.0}
"""Where each split ends among the shuffled nouns of a family."""
_CALLS, _DRAWS, _FLIPS, _TRIES = 10, 40, 4, 1000


def combinations(split: Split, seed: int = 0) -> tuple[tuple[Family, str], ...]:
    """The pairs of family and noun that a split is made of, in a shuffled order."""
    place = list(_SHARES).index(split)
    ends = [0, *(round(share * len(NOUNS)) for share in _SHARES.values())]
    pairs = []
    for family in FAMILIES:
        nouns = Random(f"nouns {family.name} {seed}").sample(NOUNS, len(NOUNS))
        pairs += [(family, noun) for noun in nouns[ends[place] : ends[place + 1]]]
    Random(f"pairs {split} {seed}").shuffle(pairs)
    return tuple(pairs)


def generate(
    split: Split, count: int, *, first: int = 0, seed: int = 0, spare_turns: int | None = None
) -> tuple[SlotTask, ...]:
    """So many tasks of a split; the first of a longer list are those of a shorter one.

    Args:
        split: whose combinations.
        count: how many.
        first: the number of the first one; parts of a list can be made apart from each other.
        seed: another one makes other tasks and other splits.
        spare_turns: how many turns an agent has beyond one for each slot, its answer among them; None
            leaves it at the task's own number.
    """
    pairs = combinations(split, seed)
    return tuple(
        _task(*pairs[number % len(pairs)], f"{split}_{seed}_{number:06d}", spare_turns)
        for number in range(first, first + count)
    )


def _task(family: Family, noun: str, name: str, spare_turns: int | None) -> SlotTask:
    chance = Random(name)
    for _ in range(_TRIES):
        slots = family.draw(chance)
        drawn = dict.fromkeys(family.call(chance, slots) for _ in range(_DRAWS))
        calls = tuple(
            f"{family.name}_{noun}({', '.join(map(repr, arguments))})"
            for arguments in list(drawn)[:_CALLS]
        )
        if len(calls) == _CALLS and all_decide(family, noun, slots, calls, chance):
            break
    else:
        raise AssertionError(f"The family {family.name} gives no task whose slots all decide.")
    asked = chance.choice(family.asks).format(noun=noun)
    example = BackendExample(
        id=f"{family.name}_{noun}_{name}",
        description=f"{asked} The signature is: {family.signature(noun)}",
        reference=family.code(noun, slots),
        calls=calls,
        kind=family.name,
        max_turns=None if spare_turns is None else len(family.slots) + spare_turns,
    )
    return SlotTask(example, family, noun, slots)


def all_decide(
    family: Family, noun: str, slots: Slots, calls: tuple[str, ...], chance: Random
) -> bool:
    """Whether each slot, changed alone, changes what some call gives."""
    expected = values_of(family.code(noun, slots), calls)
    return all(
        values_of(family.code(noun, changed), calls) != expected
        for changed in _changes(family, slots, chance)
    )


def _changes(family: Family, slots: Slots, chance: Random) -> Iterator[dict[str, SlotValue]]:
    for slot in family.slots:
        others = [value for value in slot.choices if value != slots[slot.name]]
        value = slots[slot.name]
        near = [
            other for other in others if isinstance(value, int) and abs(int(other) - value) == 1
        ]
        for other in {*near, *chance.sample(others, min(_FLIPS, len(others)))}:
            yield {**slots, slot.name: other}


def values_of(code: str, calls: tuple[str, ...]) -> list[Any]:
    """What code of our own gives; it needs no sandbox, and there is much of it to run."""
    names: dict[str, Any] = {}
    exec(code, names)
    return [eval(call, names) for call in calls]
