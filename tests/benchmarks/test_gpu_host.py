"""The script that starts vLLM, with a program that tells its arguments in the place of Python; and a server that is started by a command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.model_server import COMMAND, model_server
from tests.support.servers import temporary_folder


def started_with(*arguments: str, **variables: str) -> list[str]:
    """The words of the command that the script runs."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    printed = subprocess.run(
        [*COMMAND, *arguments],
        env={**kept, "MODEL": "/models/my model", **variables},
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return printed.stdout.split("\0")[:-1]


TELL = "#!/usr/bin/env bash\nprintf '%s\\0' \"$@\"\n"


@pytest.fixture
def tell(tmp_path: Path) -> str:
    program = tmp_path / "tell"
    program.write_text(TELL, encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def value(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_the_script_serves_the_model_with_what_memserver_needs(tell: str):
    words = started_with("--max-num-seqs", "64", PYTHON=tell, PORT="8123")
    assert words[:4] == ["-m", "vllm.entrypoints.cli.main", "serve", "/models/my model"]
    assert value(words, "--served-model-name") == "my model"
    assert value(words, "--port") == "8123"
    assert "--enable-prefix-caching" in words
    assert json.loads(value(words, "--structured-outputs-config")) == {
        "backend": "guidance",
        "disable_any_whitespace": True,
    }
    assert "--chat-template" not in words
    assert value(words, "--max-num-seqs") == "64"


def test_the_script_takes_what_is_set(tell: str):
    words = started_with(PYTHON=tell, MODE="tools", CHAT_TEMPLATE="/a b.jinja", API_SERVERS="1")
    assert json.loads(value(words, "--structured-outputs-config"))["backend"] == "xgrammar"
    assert value(words, "--chat-template") == "/a b.jinja"
    assert value(words, "--api-server-count") == "1"


def scripted(folder: Path, program: str) -> list[str]:
    """A command that starts a server as the script does: at the port in PORT."""
    script = folder / "start.sh"
    script.write_text(f'exec {sys.executable} {program} --port "$PORT"\n', encoding="utf-8")
    return ["bash", str(script)]


def test_a_server_is_started_at_a_free_port_and_ended():
    with temporary_folder() as folder:
        command = scripted(folder, "-m memserver.testing.scripted_server")
        with model_server(None, folder, command=command) as server:
            assert server.card()["id"] == "scripted"
            process = server.process
        assert process is not None
        assert process.ended


def test_a_server_that_does_not_start_shows_its_log():
    with temporary_folder() as folder:
        command = scripted(folder, "-c 'print(\"no GPU here\")'")
        with (
            pytest.raises(RuntimeError, match="no GPU here"),
            model_server(None, folder, command=command),
        ):
            pass
