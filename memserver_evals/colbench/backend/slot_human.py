"""A simulated human without a model: it has a generated task's slots in mind, and knows their names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.families import Slot
from memserver_evals.colbench.backend.generator import SlotTask
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


@dataclass(frozen=True)
class SlotHuman:
    """Says the one slot that the agent's message names first, and else that it doesn't know."""

    tasks: Mapping[str, SlotTask]

    @classmethod
    def of(cls, tasks: Sequence[SlotTask]) -> "SlotHuman":
        return cls({task.example.id: task for task in tasks})

    async def answer(self, example: BackendExample, turns: Sequence[Turn]) -> Said:
        return Said(self.reply(example.id, turns[-1].reply.text, len(turns)))

    def reply(self, example_id: str, question: str, turn: int) -> str:
        """What it says to a question at a turn, from 1: the same each time."""
        task = self.tasks[example_id]
        chance = Random(f"{example_id} {turn}")
        slot = asked_for(task.family.slots, question)
        if slot is None:
            return chance.choice(_UNKNOWN)
        return chance.choice(_TELLS).format(name=slot.name, value=task.slots[slot.name])


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
