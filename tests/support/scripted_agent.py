"""An agent whose model follows a test's script, as OpenAI's own Python client and ours reach it."""

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import openai

from memserver.client import Client
from memserver.testing.scripted import ScriptedModel, Step


@dataclass
class Scripted:
    """What the model of the server says next, its clients, and an agent that is new in each test."""

    sdk: openai.OpenAI
    client: Client
    model: ScriptedModel
    steps: list[Step] = field(default_factory=list)
    name: str = ""

    def begin(self, *steps: Step, **options: Any) -> str:
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

    def history(self) -> list[Any]:
        return list(self.client.messages.all(self.agent_id, order="asc"))
