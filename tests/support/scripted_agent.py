"""An agent whose model follows a test's script, as OpenAI's own Python client and ours reach it."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import openai

from memserver.client import Client
from memserver.errors import NotFound
from memserver.testing.scripted import Held, ScriptedModel, Step


class HeldHere:
    """A step that waits, for a test in another thread: `reached` is set when it began, and `let_go` ends it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._released: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.reached = threading.Event()

    def begin(self) -> Held:
        self._loop, self._released = asyncio.get_running_loop(), asyncio.Event()
        self.reached.set()
        return Held(self._step, self._released)

    def let_go(self) -> None:
        assert self._loop is not None
        assert self._released is not None
        self._loop.call_soon_threadsafe(self._released.set)


@dataclass
class Scripted:
    """What the model of the server says next, its clients, and an agent that is new in each test."""

    sdk: openai.OpenAI
    client: Client
    model: ScriptedModel
    steps: list[Step | HeldHere] = field(default_factory=list)
    name: str = ""

    def begin(self, *steps: Step | HeldHere, **options: Any) -> str:
        """Create an agent; returns its name."""
        self.steps[:] = steps
        self.model.seen.clear()
        self.name = f"agent-{uuid4().hex}"
        self.client.agents.create(self.name, options=options or None)
        return self.name

    @property
    def agent_id(self) -> Any:
        agent = self.client.agents.find(self.name)
        assert agent is not None
        return agent.id

    def has_turn(self, turn: int) -> bool:
        try:
            self.client.turns.get(self.agent_id, turn)
        except NotFound:
            return False
        return True

    def history(self) -> list[Any]:
        return list(self.client.messages.all(self.agent_id, order="asc"))
