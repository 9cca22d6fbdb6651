"""A system for tests of tasks: it answers as a function says, and keeps what it was sent."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from memserver_evals.task import Conversation, Material, Reply, System

Answering = Callable[[Material, str], Reply | str]


@dataclass
class Told:
    """What was said to it, after which material and when."""

    material: Material
    text: str
    at: datetime | None


@dataclass
class PlayedSystem(System):
    """Answers as the function says."""

    answering: Answering
    name: str = "told"  # type: ignore[misc] # read only in the protocol
    reported: list[Told] = field(default_factory=list)

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator[Conversation]:
        yield _Conversation(self, material)


@dataclass
class _Conversation(Conversation):
    system: PlayedSystem
    material: Material

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        self.system.reported.append(Told(self.material, text, at))
        answer = self.system.answering(self.material, text)
        return answer if isinstance(answer, Reply) else Reply(answer)
