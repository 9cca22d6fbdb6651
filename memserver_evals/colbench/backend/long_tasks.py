"""ColBench-long: functions composed of five to eight of forty modules, each with two or three hidden slots.

- The agent has as many turns as slots, and one for its answer: none to spare.
- A slot but the first of its module can be talked about once that one is known. The answer to the first names the others.
- What the human says at first names a module, or is a clue that may mean its partner as well. Which of both it mostly is
  depends on the noun, so it can be learnt. A question for what isn't there costs its turn.
- A question that names no slot may be evaded, which costs its turn, too. Answers may have other numbers in them.

The reference begins with the names and values of its slots as comments: who sees it needn't read code.
Combinations of modules are split by their hash. `unseen` ones have two or more modules that no other split has.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from random import Random
from typing import Any, Literal

from typing_extensions import override

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.families import NOUNS, Family, Slot, Slots, SlotValue
from memserver_evals.colbench.backend.long_modules import LARGEST, PAIRS, Module, Pair
from memserver_evals.colbench.backend.slot_human import Heard, SlotTask, asked_for

LongSplit = Literal["train", "validation", "test", "unseen"]
DesignName = Literal["narrow", "middle", "vague"]


@dataclass(frozen=True, slots=True)
class Design:
    """How hard the tasks are: all knobs."""

    modules: tuple[int, int]  # of a function, the fewest and the most
    clues: float  # share of modules that the human's first message doesn't name
    evasion: float  # chance that a question that names no slot is evaded
    distractors: float  # chance that an answer has another value in it
    usual: float = 0.95  # chance that a clue means what it mostly means with this noun


DESIGNS: Mapping[DesignName, Design] = {
    "narrow": Design((5, 6), clues=0.4, evasion=0.5, distractors=0.3),
    "middle": Design((5, 8), clues=0.5, evasion=0.7, distractors=0.5),
    "vague": Design((5, 8), clues=0.8, evasion=0.9, distractors=0.5),
}
"""The three that the gate may try. No other is."""
_NOUNS = NOUNS[:10]
_SHARES: Mapping[LongSplit, int] = {"train": 70, "validation": 85, "test": 100}
"""Where each split ends among a hundred hashes of combinations."""
_CALLS, _DRAWS, _CHANGES, _TRIES = 14, 60, 3, 1000
_ASKS = "I need a Python function for our {noun} fee. It begins with the amount. {hints} The signature is: {signature}"
_TELLS = ("It is {value}.", "The {name} is {value}.", "That is {value}.", "We take {value}.")
_DISTRACTED = (
    "It was {other} last year, and now it is {value}.",
    "Some say {other}, but it is {value}.",
    "It is {value}. In the other office it is {other}.",
    "Not {other}, that is for others. It is {value}.",
)
_EVASIONS = (
    "That depends.",
    "Hard to say in general.",
    "As usual, I suppose.",
    "You have to ask me something more specific.",
)
_ABSENT = ("No, there is no {name}.", "We have no {name}.", "There is nothing like that.")
_CLOSED = ("What would that belong to?", "I don't follow. Of what?")


@dataclass(frozen=True)
class LongTask(SlotTask):
    modules: tuple[Module, ...]
    design: Design

    @override
    def answer(self, question: str, turn: int, known: Set[str]) -> Heard:
        chance = Random(f"{self.example.id} {turn}")
        named = _named(question)
        if named is None:
            meant = asked_for(
                [Slot(slot.name, slot.choices, slot.vague) for slot in self.missing(known)],
                question,
            )
            if meant is None or chance.random() < self.design.evasion:
                return Heard(chance.choice(_EVASIONS), None)
            named = next(slot for slot in _EVERY if slot.name == meant.name)
        if named.name not in self.slots:
            return Heard(chance.choice(_ABSENT).format(name=named.name), None)
        if named.after and named.after not in known:
            return Heard(chance.choice(_CLOSED), None)
        return Heard(self._told(named, chance), named)

    def _told(self, slot: Slot, chance: Random) -> str:
        value = self.slots[slot.name]
        tells = _DISTRACTED if chance.random() < self.design.distractors else _TELLS
        other = chance.choice([choice for choice in slot.choices if choice != value])
        said = chance.choice(tells).format(name=slot.name, value=value, other=other)
        then = [each.name for each in self.family.slots if each.after == slot.name]
        return f"{said} Then there is the {' and the '.join(then)}." if then else said


@lru_cache(maxsize=100_000)
def _named(question: str) -> Slot | None:
    return asked_for(_EVERY, question)


_EVERY = tuple(slot for pair in PAIRS for module in pair for slot in module.slots)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Draws the arguments of a test of a composed function."""

    arguments: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]  # of each argument; empty for numbers

    def __call__(self, chance: Random, slots: Slots) -> tuple[SlotValue, ...]:  # noqa: ARG002
        rest = [chance.choice(kind) if kind else chance.randint(0, LARGEST) for kind in self.kinds]
        return (chance.randint(20, 250), *rest)


def generate_long(
    split: LongSplit,
    count: int,
    design: DesignName,
    *,
    first: int = 0,
    seed: int = 0,
    spare_turns: int | None = None,
) -> tuple[LongTask, ...]:
    """So many tasks of a split; the first of a longer list are those of a shorter one.

    Args as of `generate`; `spare_turns`: that an agent has beyond one for each slot, its answer among them; None: 1.
    """
    spare = 1 if spare_turns is None else spare_turns
    return tuple(
        _task(split, seed, DESIGNS[design], f"{split}_{design}_{seed}_{number:06d}", spare)
        for number in range(first, first + count)
    )


def unseen_pairs(seed: int) -> tuple[Pair, ...]:
    """One pair of each kind, of four topics: their modules are in no split but `unseen`."""
    chance = Random(f"unseen {seed}")
    places = chance.sample(range(len(PAIRS) // 4), 4)
    return tuple(PAIRS[4 * topic + kind] for kind, topic in enumerate(places))


def _task(split: LongSplit, seed: int, design: Design, name: str, spare: int) -> LongTask:
    chance = Random(name)
    for _ in range(_TRIES):
        noun = chance.choice(_NOUNS)
        modules = _combination(split, seed, design, noun, chance)
        if modules is None:
            continue
        family = _family(modules)
        slots = family.draw(chance)
        calls = _telling_calls(family, noun, slots, chance)
        if calls is not None:
            break
    else:
        raise AssertionError(f"{name} can't be made.")
    vague = [module for module in modules if chance.random() < design.clues]
    hints = [chance.choice(each.clues if each in vague else each.hints) for each in modules]
    signature = family.signature(noun)
    comments = "".join(f"# {slot}: {value}\n" for slot, value in slots.items())
    example = BackendExample(
        id=f"long_{noun}_{name}",
        description=_ASKS.format(noun=noun, hints=" ".join(hints), signature=signature),
        reference=comments + family.code(noun, slots),
        calls=calls,
        kind=noun,
        max_turns=len(slots) + spare,
    )
    partners = {module.root.name: _partner(module).root.name for module in vague}
    return LongTask(
        example, family, noun, slots, mistakable=partners, modules=modules, design=design
    )


def _combination(
    split: LongSplit, seed: int, design: Design, noun: str, chance: Random
) -> tuple[Module, ...] | None:
    """Modules in the order of their code; None where what was drawn is another split's."""
    new = unseen_pairs(seed)
    pairs = sorted(
        chance.sample(
            range(len(PAIRS)) if split == "unseen" else _places(new),
            chance.randint(*design.modules),
        )
    )
    if split == "unseen" and sum(PAIRS[place] in new for place in pairs) < 2:
        return None
    modules = []
    for place in pairs:
        usual = Random(f"usual {seed} {noun} {place}").randrange(2)
        modules.append(PAIRS[place][usual if chance.random() < design.usual else 1 - usual])
    return tuple(modules) if split in {"unseen", _split_of(modules, seed)} else None


def _places(new: Sequence[Pair]) -> list[int]:
    return [place for place, pair in enumerate(PAIRS) if pair not in new]


def _split_of(modules: Iterable[Module], seed: int) -> LongSplit:
    place = zlib.crc32(" ".join([str(seed), *(module.name for module in modules)]).encode()) % 100
    return next(split for split, end in _SHARES.items() if place < end)


def _partner(module: Module) -> Module:
    one, other = next(pair for pair in PAIRS if module in pair)
    return other if module == one else one


def _family(modules: Sequence[Module]) -> Family:
    kinds: dict[str, tuple[str, ...]] = {}
    for module in modules:
        for name in module.arguments:
            kinds[name] = module.topic.kinds if name == module.topic.word else ()
    return Family(
        "fee",
        (),
        ("amount", *kinds),
        tuple(chain.from_iterable(module.slots for module in modules)),
        "\n".join(("    v = amount", *(module.body for module in modules), "    return v")),
        _Calls(tuple(kinds), tuple(kinds.values())),
    )


def _telling_calls(
    family: Family, noun: str, slots: Slots, chance: Random
) -> tuple[str, ...] | None:
    """So many calls that each of several changes of each slot changes what one of them gives; None if there are none."""
    run = _compiled(family, noun)
    drawn = list(dict.fromkeys(family.call(chance, slots) for _ in range(_DRAWS)))

    def gives(values: Slots) -> list[int]:
        last = [values[slot.name] for slot in family.slots]
        return [run(*arguments, *last) for arguments in drawn]

    before = gives(slots)
    left: list[set[int]] = []
    for changed in _changes(family, slots, chance):
        both = enumerate(zip(before, gives(changed), strict=True))
        telling = {number for number, (one, other) in both if one != other}
        if not telling:
            return None
        left.append(telling)
    chosen: list[int] = []
    while left and len(chosen) < _CALLS:
        best = max(range(len(drawn)), key=lambda number: sum(number in one for one in left))
        chosen.append(best)
        left = [one for one in left if best not in one]
    chosen += [number for number in range(len(drawn)) if number not in chosen]
    if left or len(chosen) < _CALLS:
        return None
    return tuple(f"fee_{noun}({', '.join(map(repr, drawn[number]))})" for number in chosen[:_CALLS])


def _changes(family: Family, slots: Slots, chance: Random) -> Iterator[dict[str, SlotValue]]:
    for slot in family.slots:
        others = [value for value in slot.choices if value != slots[slot.name]]
        for other in chance.sample(others, min(_CHANGES, len(others))):
            yield {**slots, slot.name: other}


def _compiled(family: Family, noun: str) -> Callable[..., int]:
    """The function with its slots as further arguments: it is compiled once for all of their values."""
    places = {slot.name.replace(" ", "_"): f"s{place}" for place, slot in enumerate(family.slots)}
    arguments = ", ".join((*family.arguments, *places.values()))
    names: dict[str, Any] = {}
    exec(f"def f({arguments}):\n{family.body.format(noun=noun, **places)}", names)
    made: Callable[..., int] = names["f"]
    return made
