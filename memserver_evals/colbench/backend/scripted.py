"""Agents without a model, for generated tasks: the best that can be, the worst, and one that errs.

They know a task's family and the names of its slots, and not their values.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from memserver_evals.colbench.backend.families import Slot, SlotValue
from memserver_evals.colbench.backend.rules import MARKER
from memserver_evals.colbench.backend.slot_human import SlotTask
from memserver_evals.task import Material, Reply

_QUESTIONS = (
    "What is the {name}?",
    "Can you tell me the {name}?",
    "Which {name} should I use?",
    "What should the {name} be?",
)
_VAGUE = ("What about the {name}?", "How does the {name} come in?")
_IDLE = ("Can you tell me more?", "What is the type of the input?", "Should it print the result?")


@dataclass(frozen=True, slots=True)
class Habits:
    """How a scripted agent behaves; each is the chance of it at a turn."""

    early: float = 0  # answering though something is still unknown; 1 asks nothing
    idle: float = 0  # asking what the human can't answer
    # one of the values in the answer is not the one heard (for the whole answer)
    miscopy: float = 0
    vague: float = 0  # asking in words that the human may evade
    wrong: float = 0  # asking for what isn't there, where what the human said may mean it


ORACLE, NO_QUESTIONS = Habits(), Habits(early=1)
SENSIBLE, VAGUE = Habits(wrong=0.5), Habits(vague=1)
"""Of two things that the human may mean draws one; asks for nothing by its name."""
NOISY = Habits(early=0.08, idle=0.35, miscopy=0.2)
"""Of whose dialogues one in five ends well: something to learn from."""


@dataclass(frozen=True)
class ScriptedAgent:
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
        names |= {SENSIBLE: "sensible", VAGUE: "vague"}
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
    _tried: set[str] = field(default_factory=set)
    _turns: int = 0

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:  # noqa: ARG002
        """Answer, or ask; what the human will say to that is certain, and noted at once."""
        self._turns += 1
        missing = self.task.missing(self._known.keys())
        last = self._turns == self.max_turns
        if not missing or last or self.chance.random() < self.habits.early:
            return Reply(f"{MARKER}\n{self._answer()}")
        question = self._question(missing)
        slot = self.task.answer(question, self._turns, self._known.keys()).slot
        if slot is not None:
            self._known[slot.name] = self.task.slots[slot.name]
        return Reply(question)

    def _question(self, missing: Sequence[Slot]) -> str:
        habits, chance = self.habits, self.chance
        if chance.random() < habits.idle:
            return chance.choice(_IDLE)
        slot = chance.choice(missing)
        if slot.vague and habits.vague and chance.random() < habits.vague:
            return chance.choice(_VAGUE).format(name=chance.choice(slot.vague))
        name, other = slot.name, self.task.mistakable.get(slot.name)
        if other and other not in self._tried and chance.random() < habits.wrong:
            self._tried.add(other)
            name = other
        elif slot.also and self.task.mistakable:
            name = chance.choice((name, *slot.also))
        return chance.choice(_QUESTIONS).format(name=name)

    def _answer(self) -> str:
        slots = {**self.task.family.draw(self.chance), **self._known}
        if self._known and self.chance.random() < self.habits.miscopy:
            name = self.chance.choice(sorted(self._known))
            slots[name] = self.task.family.draw(self.chance)[name]
        return self.task.family.code(self.task.noun, slots)
