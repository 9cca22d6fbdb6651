"""A simulated human without a model: it has a generated task's slots in mind, and knows their names."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.families import Family, Slot, Slots
from memserver_evals.colbench.chat import Said
from memserver_evals.task import Turn

_TELLS = (
    "The {name} is {value}.",
    "{value}.",
    "It is {value}.",
    "We have {value} as the {name}.",
    "The {name} should be {value}.",
)
_UNKNOWN = (
    "I don't know.",
    "I don't know that.",
    "I can't say, I don't know.",
    "No idea, I don't know.",
)
_NO_WORD = re.compile(r"[^a-z0-9 ]+")


class Heard(NamedTuple):
    """An answer of the human, and the slot whose value it gives, if any."""

    text: str
    slot: Slot | None


@dataclass(frozen=True)
class SlotTask:
    """A generated task with what it was made of, for simulated humans and scripted agents."""

    example: BackendExample
    family: Family
    noun: str
    slots: Slots
    # by slots, what may be meant as well by what the human says of them at first, and isn't
    mistakable: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def answer(self, question: str, turn: int, known: Set[str]) -> Heard:  # noqa: ARG002 - others need it
        """What the human says to a question at a turn, from 1: the same each time. `known`: slots it gave."""
        chance = Random(f"{self.example.id} {turn}")
        slot = asked_for(self.family.slots, question)
        if slot is None:
            return Heard(chance.choice(_UNKNOWN), None)
        said = chance.choice(_TELLS).format(name=slot.name, value=self.slots[slot.name])
        return Heard(said, slot)

    def known_after(self, asked: Iterable[str]) -> set[str]:
        """The slots whose values the human gave in answer to these messages, the first ones of the agent."""
        known: set[str] = set()
        for turn, question in enumerate(asked, 1):
            if (slot := self.answer(question, turn, known).slot) is not None:
                known.add(slot.name)
        return known

    def missing(self, known: Set[str]) -> list[Slot]:
        return [
            slot
            for slot in self.family.slots
            if slot.name not in known and (not slot.after or slot.after in known)
        ]


@dataclass(frozen=True)
class SlotHuman:
    """Answers as the task does: mostly by the one slot that the agent's message names first."""

    tasks: Mapping[str, SlotTask]

    @classmethod
    def of(cls, tasks: Sequence[SlotTask]) -> "SlotHuman":
        return cls({task.example.id: task for task in tasks})

    async def answer(self, example: BackendExample, turns: Sequence[Turn]) -> Said:
        *before, asked = [turn.reply.text for turn in turns]
        task = self.tasks[example.id]
        return Said(task.answer(asked, len(turns), task.known_after(before)).text)


def asked_for(slots: Sequence[Slot], question: str) -> Slot | None:
    """The slot that a question names first; of two at one place the one with the longer name."""
    words = f" {' '.join(_NO_WORD.sub(' ', question.lower()).split())} "
    found = [
        (place, -len(name), slot)
        for slot in slots
        for name in (slot.name, *slot.also)
        if (place := words.find(f" {name} ")) >= 0
    ]
    return min(found, key=lambda one: one[:2])[2] if found else None
