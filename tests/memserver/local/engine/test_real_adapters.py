"""Adapters on the engine itself: what the scripted endpoint pretends, vLLM does. Run with `-m model`."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memserver.cli.local_engine import LOCAL_MODEL
from memserver.errors import InvalidInput, NotFound
from memserver.local.engine.paths import EnginePaths
from memserver.local.engine.process import LocalEngine
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.colbench.backend.rules import MARKER, answer_in, gives_answer
from memserver_evals.colbench.backend.task import AGENT_PROMPT
from sweet_rl.oracle import share_right
from tests.support.adapters import make_adapter, models
from tests.support.model_endpoint import serving_over_http
from tests.support.real_engine import START_SECONDS, engine_home, running_engine
from tests.support.server import OneDatabase

pytestmark = [pytest.mark.model, pytest.mark.timeout(2 * START_SECONDS)]


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with running_engine(adapters=True) as started:
        asyncio.run(started.wait_until_ready(within=START_SECONDS))
        yield started


def local_settings() -> dict[str, Any]:
    """What `memserver serve` sets for this model, with the fewest tokens to write: an untrained model takes all the steps that it may."""
    tokenizer = EnginePaths(engine_home()).model / "tokenizer.json"
    return LOCAL_MODEL | {
        "llm_tokenizer": tokenizer,
        "llm_longest_text": 32,
        "llm_max_output_tokens": 300,
        "max_steps": 1,
        "llm_timeout": 300,
    }


def stepped(answer: dict[str, Any]) -> bool:
    return any(message["role"] == "assistant" for message in answer["messages"])


def said(engine: LocalEngine, model: str) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 6,
    }
    answer = httpx2.post(f"{engine.base_url}/chat/completions", json=body, timeout=120)
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


async def test_agents_answer_by_adapters_that_are_loaded_and_unloaded(
    engine: LocalEngine, database: OneDatabase, tmp_path: Path
) -> None:
    async def command(*arguments: str) -> Any:
        return await asyncio.to_thread(models, engine.base_url, *arguments)

    names = []
    for number, strength in enumerate((0, 0.5)):
        folder = make_adapter(tmp_path / str(number), strength=strength)
        loaded = await command("add", "memory", str(folder))
        assert loaded.exit_code == 0, loaded.output
        names.append(loaded.stdout.strip())
    again = await command("add", "memory", str(tmp_path / "0"))
    listed = await command("list")
    assert again.stdout.strip() == names[0] != names[1]
    assert "loaded already" in again.stderr
    assert all(re.search(f"{name} +│ adapter +│ {engine.model}", listed.stdout) for name in names)

    unchanged, changed, base = [said(engine, name) for name in (*names, engine.model)]
    assert unchanged == base != changed

    settings = local_settings()
    async with serving_over_http(database, engine.base_url, **settings) as server:
        agents = [await server.create_agent(model=name) for name in (names[0], None)]
        answers = await asyncio.gather(*(server.say(agent, "Hello!") for agent in agents))
        assert all(stepped(answer) for answer in answers)
        plain = {"reply_mode": "chat", "max_output_tokens": 16}
        policy = await server.create_agent(model=names[0], options=plain)
        assert (await server.say(policy, "Hello!"))["stop_reason"] == "message_sent"

        gone = await command("unload", names[0])
        assert gone.exit_code == 0, gone.output
        failed = await server.http.post(
            f"/v1/agents/{agents[0]}/messages", json={"text": "And now?"}
        )
        error = failed.json()["error"]
        assert error["code"] == "model_not_found"
        assert names[0] in error["message"]
        assert f"It has: {engine.model}, {names[1]}." in error["hint"]
        given = await server.http.patch(f"/v1/agents/{agents[0]}", json={"model": None})
        assert given.status_code == 200
        assert stepped(await server.say(agents[0], "And now?"))

    too_large = make_adapter(tmp_path / "large", rank=64)
    refused = await command("add", "large", str(too_large))
    assert isinstance(refused.exception, InvalidInput)
    assert "--max-lora-rank" in refused.exception.hint
    missing = await command("add", "memory", str(tmp_path / "none"), "--version", "1")
    assert isinstance(missing.exception, InvalidInput)
    assert "No adapter found" in missing.exception.message
    unknown = await command("unload", "memory-none")
    assert isinstance(unknown.exception, NotFound)


async def test_the_policy_in_this_repository_asks_and_then_writes_the_code_as_an_agent(
    engine: LocalEngine, database: OneDatabase
) -> None:
    folder = str(Path(__file__).parents[4] / "adapters" / "colbench")
    loaded = await asyncio.to_thread(models, engine.base_url, "add", "colbench", folder)
    assert "was trained on" not in loaded.output, "it names the model that this engine serves"
    [task] = generate("test", 1, seed=1, spare_turns=2)
    turns = task.example.max_turns
    assert turns is not None
    text = task.example.description
    async with serving_over_http(database, engine.base_url, **local_settings()) as server:
        agent = await server.create_agent(
            model=loaded.stdout.strip(),
            options={"reply_mode": "chat"},
            sections=[],
            system_prompt=Prompts().render(AGENT_PROMPT, marker=MARKER, turns=turns),
        )
        for turn in range(1, turns + 1):
            answer = await server.say(agent, text)
            said = answer["messages"][-1]["text"]
            if gives_answer(said):
                break
            text = task.answer(said, turn, set()).text
        assert share_right(task, answer_in(said)) == 1, said
        recalled = await server.get(f"{agent}/messages")
        roles = [message["role"] for message in recalled["items"]]
    assert roles.count("user") == roles.count("assistant") == turn > 1
