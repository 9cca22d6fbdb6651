"""One server for the tests of a file, whose model follows the script of the test that runs."""

from collections.abc import Iterator

import openai
import pytest

from memserver.client import Client
from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import ScriptedModel, Step
from tests.support.client import served
from tests.support.scripted_agent import HeldHere, Scripted
from tests.support.server import OneDatabase


@pytest.fixture(scope="module")
def _scripted(shared_database: OneDatabase) -> Iterator[Scripted]:
    steps: list[Step | HeldHere] = []

    def rule(_prompt: Prompt, _tools: ToolSpecs) -> Step:
        step = steps.pop(0)
        return step.begin() if isinstance(step, HeldHere) else step

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
