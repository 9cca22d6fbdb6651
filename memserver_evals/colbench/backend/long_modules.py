"""The forty modules, with a hundred slots, of which ColBench-long composes functions: eight shapes of five topics.

Two shapes of one topic are a pair: what the human says of one at first may mean the other as well. A function has at most
one of a pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memserver_evals.colbench.backend.families import Slot, SlotValue

_SPECIFIC = ("There is a {name}.", "It has a {name}.", "Mind the {name}.", "We have a {name}.")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str  # what it is about
    number: str  # the argument that measures it
    word: str  # the argument that names its kind
    kinds: tuple[str, ...]  # what that one can be


@dataclass(frozen=True, slots=True)
class Module:
    """Some lines of a function."""

    topic: Topic
    shape: str
    clues: tuple[
        str, ...
    ]  # what the human says of it at first, if vaguely: the same as of its partner
    slots: tuple[Slot, ...]  # the first one is what opens the others
    body: str  # its code, which changes `v`

    @property
    def root(self) -> Slot:
        return self.slots[0]

    @property
    def name(self) -> str:
        return f"{self.topic.name} {self.shape}"

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(
            each for each in (self.topic.number, self.topic.word) if f"{each} " in self.body
        )

    @property
    def hints(self) -> Sequence[str]:
        """What the human says of it at first, if clearly."""
        return [hint.format(name=self.root.name) for hint in _SPECIFIC]


Pair = tuple[Module, Module]
TOPICS = (
    Topic("distance", "km", "zone", ("north", "south", "east", "west", "centre")),
    Topic("weight", "kg", "material", ("glass", "paper", "steel", "wood", "cloth")),
    Topic("waiting", "days", "weekday", ("mon", "tue", "wed", "thu", "fri")),
    Topic("membership", "years", "plan", ("basic", "silver", "gold", "family", "student")),
    Topic("quantity", "count", "channel", ("phone", "web", "shop", "mail", "agent")),
)
LARGEST = 60
"""Of the numbers that arguments other than `amount` are."""
_LIMIT, _STEP, _SMALL, _MUCH = range(8, 51), range(5, 16), range(2, 8), range(6, 41)
_Slots = Mapping[str, tuple[Sequence[SlotValue] | str, tuple[str, ...]]]
"""By name: the values (or whose kinds they are) and other names. `{t}` is the topic, `{w}` the argument that names a kind."""
_SHAPES: tuple[tuple[str, tuple[str, ...], _Slots, str], ...] = (
    (
        "discount",
        ("A large {t} can make it cheaper.", "It gets cheaper by the {t}."),
        {
            "{t} discount": (_LIMIT, ("discount for {t}", "{t} rebate")),
            "{t} reduction": (_MUCH, ("reduction for {t}", "{t} saving")),
        },
        "    if {x} >= {0}:\n        v -= {1}",
    ),
    (
        "credit",
        ("A large {t} can make it cheaper.", "It gets cheaper by the {t}."),
        {
            "{t} credit": (_SMALL, ("credit for {t}", "{t} bonus")),
            "{t} credit cap": (range(20, 121), ("most {t} credit", "limit of the {t} credit")),
        },
        "    v -= min({x} * {0}, {1})",
    ),
    (
        "rate",
        ("A large {t} can make it dearer.", "It gets dearer by the {t}."),
        {
            "{t} rate": (_SMALL, ("rate for {t}", "{t} unit price")),
            "free {t}": (_LIMIT, ("{t} included", "{t} without charge")),
        },
        "    v += max(0, {x} - {1}) * {0}",
    ),
    (
        "penalty",
        ("A large {t} can make it dearer.", "It gets dearer by the {t}."),
        {
            "{t} penalty": (_SMALL, ("penalty for {t}", "{t} fine")),
            "{t} grace": (range(5, 31), ("grace for {t}", "{t} tolerance")),
            "{t} penalty cap": (range(20, 91), ("most {t} penalty", "limit of the {t} penalty")),
        },
        "    if {x} > {1}:\n        v += min(({x} - {1}) * {0}, {2})",
    ),
    (
        "tier",
        ("Small and large {t} are not treated alike.", "It depends on how large the {t} is."),
        {
            "{t} tier": (_LIMIT, ("{t} border", "tiers of {t}")),
            "low {t} fee": (_MUCH, ("fee for small {t}", "{t} fee below")),
            "high {t} fee": (_MUCH, ("fee for large {t}", "{t} fee above")),
        },
        "    v += {1} if {x} < {0} else {2}",
    ),
    (
        "rounding",
        ("Small and large {t} are not treated alike.", "It depends on how large the {t} is."),
        {
            "{t} rounding": (_STEP, ("rounding by {t}", "{t} step")),
            "{t} rounding limit": (_LIMIT, ("limit of {t} rounding", "{t} to round from")),
            "{t} rounding fee": (_MUCH, ("fee of {t} rounding", "fee after {t} rounding")),
        },
        "    if {x} > {1}:\n        v = v // {0} * {0} + {2}",
    ),
    (
        "surcharge",
        ("One {w} is special.", "There is an exception for one {w}."),
        {
            "{w} surcharge": ("kinds", ("surcharge for a {w}", "{w} to pay extra")),
            "{w} extra": (_MUCH, ("extra for the {w}", "{w} addition")),
        },
        "    if {y} == {0}:\n        v += {1}",
    ),
    (
        "exclusion",
        ("One {w} is special.", "There is an exception for one {w}."),
        {
            "{w} exclusion": ("kinds", ("exclusion for a {w}", "{w} left out")),
            "{w} allowance": (range(3, 21), ("allowance for the {w}", "{w} basis")),
            "{w} most": (range(60, 241), ("most for the {w}", "{w} maximum")),
        },
        "    if {y} == {0}:\n        v = min(v + {1}, {2})",
    ),
)


def _module(topic: Topic, shape: str, clues: tuple[str, ...], named: _Slots, body: str) -> Module:
    words = {"t": topic.name, "w": topic.word}
    names = [name.format(**words) for name in named]
    slots = tuple(
        Slot(
            name,
            topic.kinds if isinstance(choices, str) else choices,
            tuple(other.format(**words) for other in also),
            (topic.name, topic.word),
            "" if name == names[0] else names[0],
        )
        for name, (choices, also) in zip(names, named.values(), strict=True)
    )
    marks = [f"{{{name.replace(' ', '_')}}}" for name in names]
    lines = body.format(*marks, x=topic.number, y=topic.word)
    return Module(topic, shape, tuple(clue.format(**words) for clue in clues), slots, lines)


PAIRS: tuple[Pair, ...] = tuple(
    (_module(topic, *_SHAPES[first]), _module(topic, *_SHAPES[first + 1]))
    for topic in TOPICS
    for first in range(0, len(_SHAPES), 2)
)
MODULES: tuple[Module, ...] = tuple(module for pair in PAIRS for module in pair)
