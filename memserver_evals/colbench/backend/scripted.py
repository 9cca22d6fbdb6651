"""Agents without a model, for generated tasks: the best that can be, the worst, and one that errs.

They know a task's family and the names of its slots, and not their values.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from memserver_evals.colbench.backend.families import Slot, SlotValue
from memserver_evals.colbench.backend.generator import SlotTask
from memserver_evals.colbench.backend.rules import MARKER
from memserver_evals.task import Material, Reply

_QUESTIONS = (
    "What is the {name}?",
    "Can you tell me the {name}?",
    "Which {name} should I use?",
    "What should the {name} be?",
)
_IDLE = ("Can you tell me more?", "What is the type of the input?", "Should it print the result?")


@dataclass(frozen=True, slots=True)
class Habits:
    """How a scripted agent behaves; each is the chance of it at a turn."""

    early: float = 0  # answering though something is still unknown; 1 asks nothing
    idle: float = 0  # asking what the human can't answer
    # one of the values in the answer is not the one heard (for the whole answer)
    miscopy: float = 0


ORACLE, NO_QUESTIONS = Habits(), Habits(early=1)
NOISY = Habits(early=0.08, idle=0.35, miscopy=0.2)
"""Of whose dialogues one in five ends well: something to learn from."""


@dataclass(frozen=True)
class ScriptedAgent:
    """A system that plays generated tasks."""

    tasks: Mapping[str, SlotTask]  # by the ids of their examples
    habits: Habits = ORACLE  # how it behaves
    max_turns: int = 10  # it answers with its last one, where an example says no other number
    seed: int = 0  # of its chances; with other seeds it plays the same task otherwise

    @classmethod
    def of(cls, tasks: Sequence[SlotTask], habits: Habits = ORACLE, **rest: int) -> "ScriptedAgent":
        return cls({task.example.id: task for task in tasks}, habits, **rest)

    @property
    def name(self) -> str:
        names = {ORACLE: "oracle", NO_QUESTIONS: "no-questions", NOISY: "noisy"}
        return names.get(self.habits, "scripted")

    @asynccontextmanager
    async def begin(  # the material has nothing new
        self,
        example_id: str,
        material: Material,  # noqa: ARG002
    ) -> AsyncIterator["ScriptedTalk"]:
        chance = Random(f"{example_id} {self.seed}")
        task = self.tasks[example_id]
        turns = task.example.max_turns or self.max_turns
        yield ScriptedTalk(task, self.habits, turns, chance)


@dataclass
class ScriptedTalk:
    task: SlotTask
    habits: Habits
    max_turns: int
    chance: Random
    _known: dict[str, SlotValue] = field(default_factory=dict)
    _asked: Slot | None = None
    _turns: int = 0

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:  # noqa: ARG002
        self._turns += 1
        if self._asked is not None:
            value = _value_in(text, self._asked)
            if value is not None:
                self._known[self._asked.name] = value
            self._asked = None
        unknown = [slot for slot in self.task.family.slots if slot.name not in self._known]
        last = self._turns == self.max_turns
        if not unknown or last or self.chance.random() < self.habits.early:
            return Reply(f"{MARKER}\n{self._answer()}")
        if self.chance.random() < self.habits.idle:
            return Reply(self.chance.choice(_IDLE))
        self._asked = self.chance.choice(unknown)
        return Reply(self.chance.choice(_QUESTIONS).format(name=self._asked.name))

    def _answer(self) -> str:
        slots = {**self.task.family.draw(self.chance), **self._known}
        if self._known and self.chance.random() < self.habits.miscopy:
            name = self.chance.choice(sorted(self._known))
            slots[name] = self.task.family.draw(self.chance)[name]
        return self.task.family.code(self.task.noun, slots)


def _value_in(text: str, slot: Slot) -> SlotValue | None:
    if isinstance(slot.choices[0], int):
        number = re.search(r"\d+", text)
        return int(number[0]) if number else None
    return next((choice for choice in slot.choices if re.search(rf"\b{choice}\b", text)), None)
