"""One server for the tests of a file, whose model follows the script of the test that runs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import openai
import pytest

from memserver.client import Client
from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import ScriptedModel, Step
from tests.support.client import served
from tests.support.server import OneDatabase


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


@pytest.fixture(scope="module")
def _scripted(shared_database: OneDatabase) -> Iterator[Scripted]:
    steps: list[Step] = []

    def rule(_prompt: Prompt, _tools: ToolSpecs) -> Step:
        return steps.pop(0)

    with (
        served(shared_database, ScriptedModel(rule)) as server,
        Client(server.url) as client,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk,
    ):
        yield Scripted(sdk, client, server.model, steps)


@pytest.fixture
def scripted(_scripted: Scripted) -> Iterator[Scripted]:
    yield _scripted
    assert _scripted.steps == []
