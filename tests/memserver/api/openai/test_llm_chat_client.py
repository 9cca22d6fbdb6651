"""Simon Willison's `llm`, a chat client from PyPI, driven as a person would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memserver.client import Client
from memserver.testing.scripted import ScriptedModel
from memserver.testing.scripted_rules import echo
from tests.support.client import served
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # five starts of a Python


def llm(folder: Path, *arguments: str, typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments],
        input=typed,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LLM_USER_PATH": str(folder)},
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not NIGHTLY, reason="its twin of tests/clients does more: make nightly")
def test_llm_talks_with_an_agent_which_reads_everything_once(tmp_path: Path, database: OneDatabase):
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        agent = client.agents.create("sam")
        (tmp_path / "extra-openai-models.yaml").write_text(
            f"- model_id: sam\n  model_name: sam\n  api_base: {server.url}/v1\n", encoding="utf-8"
        )
        assert llm(tmp_path, "-m", "sam", "-s", "You are a pirate.", "one") == "echo: one\n"
        assert llm(tmp_path, "-c", "two") == "echo: two\n"
        assert llm(tmp_path, "-c", "--no-stream", "three") == "echo: three\n"
        chatted = llm(tmp_path, "chat", "-m", "sam", typed="four\nfive\nexit\n")
        assert "echo: four" in chatted
        assert "echo: five" in chatted
        logged = llm(tmp_path, "logs", "-c", "--usage")
        assert "input" in logged
        history = [each.text for each in client.messages.all(agent.id, order="asc")]
    said = ["one", "two", "three", "four", "five"]
    assert history == [text for each in said for text in (each, f"echo: {each}")]
