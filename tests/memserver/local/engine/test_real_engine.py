"""The engine itself: vLLM on the CPU with the real model. Run with `-m model`; needs a minute."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memserver.local.engine.install import install_engine
from memserver.local.engine.paths import EnginePaths
from memserver.local.engine.process import LocalEngine
from tests.support.real_engine import START_SECONDS, engine_home, running_engine

pytestmark = [pytest.mark.model, pytest.mark.timeout(2 * START_SECONDS)]

ARGUMENTS = {
    "type": "object",
    "properties": {
        "inner_thought": {"type": "string", "maxLength": 40},
        "message": {"type": "string", "maxLength": 60},
    },
    "required": ["inner_thought", "message"],
    "additionalProperties": False,
}
PARENT = """
import sys, time
from pathlib import Path
from memserver.local.engine.install import install_engine
from memserver.local.engine.paths import EnginePaths
from memserver.local.engine.process import LocalEngine
engine = LocalEngine(Path(sys.argv[1]), context_window=1024)
engine.start()
print(engine._process.child.pid, flush=True)
time.sleep(600)
"""


def ask(engine: LocalEngine, text: str, **body: Any) -> dict[str, Any]:
    body = {
        "model": engine.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 200,
    } | body
    answer = httpx2.post(f"{engine.base_url}/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def test_it_answers(real_engine: LocalEngine) -> None:
    choice = ask(real_engine, "What is the capital of France?")
    assert "Paris" in choice["message"]["content"]


def test_prompts_longer_than_a_step_may_have_a_seed_and_a_temperature(
    real_engine: LocalEngine,
) -> None:
    with ThreadPoolExecutor() as pool:
        answers = [
            pool.submit(ask, real_engine, word * 1800, seed=number, temperature=0.7, max_tokens=5)
            for number, word in enumerate(("one ", "two "))
        ]
        assert {answer.result()["finish_reason"] for answer in answers} <= {"length", "stop"}
    assert "Paris" in ask(real_engine, "What is the capital of France?")["message"]["content"]


def test_a_json_schema_holds_and_its_lengths_end_the_answer(real_engine: LocalEngine) -> None:
    variants = [
        {
            "type": "object",
            "properties": {"tool": {"const": name}, "arguments": ARGUMENTS},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for name in ("send_message", "save")
    ]
    choice = ask(
        real_engine,
        "Write a very long story in JSON.",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "tool_call", "strict": True, "schema": {"anyOf": variants}},
        },
    )
    call = json.loads(choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    assert call["tool"] in {"send_message", "save"}
    assert len(call["arguments"]["message"]) <= 60


async def test_set_to_native_tools_a_required_call_keeps_its_schema() -> None:
    function = {"name": "send_message", "strict": True, "parameters": ARGUMENTS}
    with running_engine(native_tools=True) as engine:
        await engine.wait_until_ready(within=START_SECONDS)
        choice = ask(
            engine,
            "Hi",
            tools=[{"type": "function", "function": function}],
            tool_choice="required",
        )
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "send_message"
    assert set(json.loads(call["function"]["arguments"])) == {"inner_thought", "message"}


def test_a_schema_chooses_its_separators(real_engine: LocalEngine) -> None:
    spaced = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
    schema = ARGUMENTS | {"x-guidance": spaced}
    choice = ask(
        real_engine,
        "Say hello in JSON.",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "tool_call", "strict": True, "schema": schema},
        },
    )
    text = choice["message"]["content"]
    assert text.startswith('{"inner_thought": "')
    assert '", "message": "' in text


def test_past_calls_and_results_are_accepted(real_engine: LocalEngine) -> None:
    function = {"name": "look", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "A red ball."},
        {"role": "user", "content": "What did you see?"},
    ]
    assert ask(real_engine, "", messages=messages)["message"]["content"]


def test_it_listens_on_the_loopback_only_and_reaches_for_no_network(
    real_engine: LocalEngine,
) -> None:
    port = real_engine.base_url.removesuffix("/v1").rpartition(":")[2]
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{int(port):04X}")
    ]
    assert listening == [f"0100007F:{int(port):04X}"]
    log = (engine_home() / "engine" / "engine.log").read_text(encoding="utf-8")
    assert "huggingface.co" not in log


def test_stopped_it_is_gone_and_says_so(tmp_path: Path) -> None:
    engine = LocalEngine(engine_home(), context_window=1024)
    assert engine.state().phase == "stopped"
    engine.start()
    assert engine.state().phase == "loading"
    session = engine._process.child.pid  # type: ignore[union-attr]
    wait_for(lambda: len(alive(session)) >= 2)
    engine.stop()
    assert engine.state().phase == "stopped"
    wait_for(lambda: not alive(session))


def test_a_parent_killed_with_sigkill_leaves_no_process() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(engine_home())], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        session = int(parent.stdout.readline())
        # The supervisor, the server, and at least one of the server's own children.
        wait_for(lambda: len(alive(session)) >= 3)
    finally:
        parent.kill()
        parent.communicate()
    wait_for(lambda: not alive(session))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(session: int) -> list[str]:
    """The names of the session's processes, zombies not counted."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text(encoding="utf-8").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, _, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name)
    return found


def test_the_engines_own_python_converts_the_model_again(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "venv").symlink_to(EnginePaths(engine_home()).venv)
    said: list[str] = []
    model = install_engine(tmp_path, say=said.append)
    assert [line for line in said if line.startswith("Converting")]
    fresh = (model / "model.safetensors").read_bytes()
    assert fresh == (EnginePaths(engine_home()).model / "model.safetensors").read_bytes()
