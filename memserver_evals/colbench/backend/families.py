"""Small functions with hidden constants ("slots"), from which backend tasks are generated.

A family is a shape of code. Its slots are what the human has in mind and the agent has to ask for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

SlotValue = int | str
Slots = Mapping[str, SlotValue]


@dataclass(frozen=True, slots=True)
class Slot:
    name: str  # what people call it
    choices: Sequence[SlotValue]  # the values that it can have
    also: tuple[str, ...] = ()  # other words for it that the simulated human knows
    vague: tuple[str, ...] = ()  # words that may mean others, too: it may evade them
    after: str = ""  # another slot, without which this one can't be talked about


@dataclass(frozen=True, slots=True)
class Family:
    """A shape of code."""

    name: str  # of the rule; the function's name begins with it
    asks: tuple[str, ...]  # what the human says at first, with `{noun}`
    arguments: tuple[str, ...]  # of the function, with `{noun}`
    slots: tuple[Slot, ...]  # in the order in which the code has them
    # its code, with `{noun}` and the slots' names with `_` for blanks; values as Python has them
    body: str
    # the arguments of one test, near where the slots make a difference
    call: Callable[[Random, Slots], tuple[SlotValue, ...]]

    def signature(self, noun: str) -> str:
        arguments = ", ".join(name.format(noun=noun) for name in self.arguments)
        return f"def {self.name}_{noun}({arguments})"

    def code(self, noun: str, slots: Slots) -> str:
        values = {name.replace(" ", "_"): repr(value) for name, value in slots.items()}
        return f"{self.signature(noun)}:\n{self.body.format(noun=noun, **values)}"

    def draw(self, chance: Random) -> dict[str, SlotValue]:
        return {slot.name: chance.choice(slot.choices) for slot in self.slots}


NOUNS = (
    "order", "parcel", "ticket", "invoice", "trip", "battery", "loan", "ration", "score", "rental",
    "meal", "ferry", "booking", "shift", "visit", "repair", "lesson", "permit", "harvest", "print",
)  # fmt: skip
_DAYS = ("mon", "tue", "wed", "thu", "fri")
_LABELS = ("high", "gold", "urgent", "max", "vip", "peak")


def _near(chance: Random, slots: Slots, *names: str) -> int:
    """A number at, or just beside, one of these slots; sometimes any number."""
    if chance.random() < 0.3:
        return chance.randint(0, 120)
    return int(slots[chance.choice(names)]) + chance.choice((-1, 0, 1))


def _around(chance: Random, border: float, spread: int = 3) -> int:
    return max(0, int(border) + chance.randint(-spread, spread))


def _clamp_call(chance: Random, slots: Slots) -> tuple[SlotValue, ...]:
    border = chance.choice(("floor", "ceiling"))
    if chance.random() < 0.3:
        return (chance.randint(0, 60),)
    return (_around(chance, int(slots[border]) / int(slots["factor"])),)


def _points_call(chance: Random, slots: Slots) -> tuple[SlotValue, ...]:
    day = chance.choice((slots["bonus day"], *_DAYS))
    if chance.random() < 0.6:
        return chance.randint(1, 40), day
    return _around(chance, int(slots["cap"]) / int(slots["multiplier"])), day


def _fare_call(chance: Random, slots: Slots) -> tuple[SlotValue, ...]:
    if chance.random() < 0.25:
        return (chance.randint(100, 250),)
    return (_near(chance, slots, "threshold"),)


def _stock_call(chance: Random, slots: Slots) -> tuple[SlotValue, ...]:
    return (_around(chance, int(slots["reserve"]) + int(slots["reorder level"]), spread=8),)


FAMILIES = (
    Family(
        "tier",
        (
            "I need a Python function for the price of {noun}s: large ones get a discount, small ones pay a fee.",
            "Please write a function that changes the amount of a {noun}: from some amount on it is less, below it is more.",
        ),
        ("amount",),
        (
            Slot("threshold", range(20, 91), ("limit", "from which amount", "large enough")),
            Slot("discount", range(2, 16), ("reduction", "how much less", "how much cheaper")),
            Slot("fee", range(2, 16), ("surcharge", "how much more", "extra charge")),
        ),
        "    if amount >= {threshold}:\n        return amount - {discount}\n    return amount + {fee}",
        lambda chance, slots: (_near(chance, slots, "threshold"),),
    ),
    Family(
        "clamp",
        (
            "I need a Python function that scales a {noun} by a factor and keeps it between a floor and a ceiling.",
            "Please write a function for the value of a {noun}: multiplied, but never too low and never too high.",
        ),
        ("value",),
        (
            Slot("floor", range(8, 31), ("minimum", "lowest", "at least")),
            Slot("ceiling", range(60, 121), ("maximum", "highest", "at most")),
            Slot("factor", range(2, 6), ("multiplied by", "multiplier", "scale")),
        ),
        "    return max({floor}, min({ceiling}, value * {factor}))",
        _clamp_call,
    ),
    Family(
        "label",
        (
            "I need a Python function that says how good a {noun} is: 'low', 'mid' or the best label.",
            "Please write a function that puts a {noun} into one of three classes: 'low', 'mid' and a top one.",
        ),
        ("level",),
        (
            Slot("low cutoff", range(10, 41), ("lower cutoff", "below which", "first cutoff")),
            Slot("high cutoff", range(45, 91), ("upper cutoff", "from which", "second cutoff")),
            Slot("top label", _LABELS, ("best label", "top class", "name of the best")),
        ),
        "    if level < {low_cutoff}:\n        return 'low'\n    if level < {high_cutoff}:\n        return 'mid'\n    return {top_label}",
        lambda chance, slots: (_near(chance, slots, "low cutoff", "high cutoff"),),
    ),
    Family(
        "points",
        (
            "I need a Python function for the points of a {noun}: so many for each unit, a bonus on one day, and a cap.",
            "Please write a function that counts the loyalty points of a {noun} from units and day ('mon' to 'fri').",
        ),
        ("units", "day"),
        (
            Slot("multiplier", range(2, 8), ("points per unit", "each unit", "factor")),
            Slot("bonus day", _DAYS, ("which day", "day of the bonus")),
            Slot("bonus", range(5, 41), ("extra points", "how many more")),
            Slot("cap", range(150, 301), ("maximum", "at most", "upper limit")),
        ),
        "    points = units * {multiplier}\n    if day == {bonus_day}:\n        points += {bonus}\n    return min(points, {cap})",
        _points_call,
    ),
    Family(
        "fare",
        (
            "I need a Python function for the fare of a {noun}: a base price, a rate, a surcharge for long ones, and a cap.",
            "Please write a function that says what a {noun} costs by its distance; far ones cost extra, but not without end.",
        ),
        ("distance",),
        (
            Slot("base", range(5, 41), ("base price", "start price", "fixed part")),
            Slot("rate", range(2, 7), ("per unit", "for each", "per mile")),
            Slot("threshold", range(20, 71), ("how far", "long ones", "from which distance")),
            Slot("surcharge", range(5, 41), ("extra", "additional charge")),
            Slot("cap", range(300, 501), ("maximum", "at most", "most it can cost")),
        ),
        "    price = {base} + distance * {rate}\n    if distance > {threshold}:\n        price += {surcharge}\n    return min(price, {cap})",
        _fare_call,
    ),
    Family(
        "stock",
        (
            "I need a Python function that says how much to buy for the {noun} store: nothing while there is enough, else a whole batch.",
            "Please write a function that tells the size of the next purchase for our {noun}s from what is in stock.",
        ),
        ("stock",),
        (
            Slot("reserve", range(3, 21), ("kept back", "set aside", "safety stock")),
            Slot("reorder level", range(10, 61), ("when to buy", "enough", "reorder point")),
            Slot("batch size", range(20, 101), ("batch", "how many at once", "how much to buy")),
        ),
        "    if stock - {reserve} >= {reorder_level}:\n        return 0\n    return {batch_size}",
        _stock_call,
    ),
)
