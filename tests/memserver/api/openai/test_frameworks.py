"""Frameworks that speak OpenAI's API, as their packages are, each with text, streams, tools and structured output.

They come into an environment of their own: together they are larger than the server.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memserver.client import Client
from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.client import served
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

FOLDER = Path(__file__).parent / "frameworks"
OSLO = {"city": "Oslo", "sunny": True}

pytestmark = [
    pytest.mark.skipif(not NIGHTLY, reason="installs four frameworks: make nightly"),
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frameworks")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = ["-m", "pip", "install", "--quiet", "--requirement", FOLDER / "requirements.txt"]
    subprocess.run([folder / "bin/python", *install], check=True)
    return folder / "bin/python"


def act(prompt: Prompt, tools: ToolSpecs) -> Step:
    """Does what the user says: say a text, call get_weather, or give the weather in the form that is wanted."""
    if prompt[-1].role == "tool":
        return say(f"result: {prompt[-1].text.removeprefix('OK. ')}")
    text = last_user_text(prompt)
    if text.startswith("call "):
        return Call(text.removeprefix("call "), {"city": "Oslo"})
    if text != "weather":
        return say(text.removeprefix("say "))
    for name in ("final_result", "Weather"):
        if any(tool.name == name for tool in tools):
            return Call(name, OSLO)
    return Call("send_message", {"message": OSLO})


@pytest.mark.parametrize("client", ["langchain", "litellm", "openai_agents", "pydantic_ai"])
def test_a_framework_works_as_it_is(database: OneDatabase, python: Path, client: str):
    with served(database, ScriptedModel(act)) as server:
        with Client(server.url) as ours:
            ours.agents.create("sam")
        done: Any = subprocess.run(
            [python, FOLDER / f"{client}_client.py", f"{server.url}/v1"],
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
