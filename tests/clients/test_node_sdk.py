"""OpenAI's own client for Node, unmodified, against the server on a real socket."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from memserver.client import Client
from memserver.errors import ModelUnavailable
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.clients import programs
from tests.support.client import served
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # npm may have to download


def echo(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    text = last_user_text(prompt)
    return ModelUnavailable("down") if text == "fail" else say(f"you said {text}")


@pytest.mark.skipif(not NIGHTLY, reason="takes half a minute: make nightly")
def test_openais_sdk_for_node_works_unmodified(database: OneDatabase):
    node, folder = programs.node(), programs.node_folder()
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        agent = client.agents.create("sam")
        printed = programs.run([*node, "openai_tour.mjs", f"{server.url}/v1"], folder)
        found: dict[str, Any] = json.loads(printed)
        said = [
            each.text for each in client.messages.all(agent.id, order="asc") if each.role == "user"
        ]
    assert (found["models"], found["model"]) == (["sam"], "sam")
    assert found["completion"] == "you said one"
    assert found["usage"]["total_tokens"] > 0
    assert "".join(found["chunks"]) == "you said two"
    assert found["streamUsage"]["completion_tokens"] > 0
    assert (found["response"], found["retrieved"]) == ("you said three", "you said three")
    assert found["streamed"] == "you said four"
    assert found["events"][0] == "response.created"
    assert found["events"][-1] == "response.completed"
    assert found["errors"] == [
        ["NotFoundError", 404, "model_not_found", None],
        ["BadRequestError", 400, "invalid_input", "n"],
        ["InternalServerError", 503, "model_unavailable", None],
    ]
    assert said == ["one", "two", "three", "four", "fail"]
