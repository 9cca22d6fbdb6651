"""`memserver serve` while its local engine loads, dies or stays away: messages wait, and none is lost."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Client, client, eventually, server, turn_states
from tests.support.server import OneDatabase
from tests.support.servers import ServerProcess, Settings, settings_for
from tests.support.stand_in_engine import DEADLY, DEADLY_ONCE, StandInEngine

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(folder: Path) -> StandInEngine:
    return StandInEngine.install(folder / "home")


@pytest.fixture
def settings(engine: StandInEngine, database: OneDatabase) -> Settings:
    urls = {"database_url": database.owner, "database_app_url": database.app}
    settings = settings_for("http://127.0.0.1:9", home=engine.home, **urls)
    del settings["llm_base_url"]
    return settings


async def let_go(engine: StandInEngine, *orders: str) -> None:
    for order in orders or ["serve"]:
        await asyncio.to_thread(engine.let_go, order)


async def model_detail(user: Client) -> str:
    answer = await user.http.get("/v1/ready")
    [model] = [part for part in answer.json()["components"] if part["name"] == "model"]
    detail: str = model["detail"]
    return detail


async def streamed(user: Client, agent: str, text: str) -> str:
    body = {"text": text, "stream": True}
    async with user.http.stream("POST", f"/v1/agents/{agent}/messages", json=body) as answer:
        return "".join([part async for part in answer.aiter_text()])


async def as_openai(user: Client, agent: str, text: str) -> str:
    body = {"model": agent, "messages": [{"role": "user", "content": text}]}
    answer = await user.http.post("/v1/chat/completions", json=body)
    said: str = answer.json()["choices"][0]["message"]["content"]
    return said


async def ready(process: ServerProcess, *, times: int) -> None:
    await eventually(lambda: process.log_text().count("The local model is ready") == times)


async def started(database: OneDatabase, *requests: Awaitable[Any]) -> list[asyncio.Task[Any]]:
    """The requests on their way, their messages in the inbox."""
    tasks = [asyncio.ensure_future(request) for request in requests]
    await eventually(lambda: turn_states(database) == ["waiting"] * len(tasks))
    return tasks


async def test_messages_posted_while_the_engine_loads_are_answered_when_it_is_ready(
    folder: Path, engine: StandInEngine, settings: Settings, database: OneDatabase
) -> None:
    with server(folder, settings, "--workers", "2") as process:
        async with client(process) as user:
            assert (await model_detail(user)).startswith("loading: importing vLLM")
            one, two, three = [await user.create_agent() for _ in range(3)]
            requests = await started(
                database,
                user.say(one, "hello"),
                streamed(user, two, "hello"),
                as_openai(user, three, "hello"),
            )
            await let_go(engine)
            whole, stream, openai = await asyncio.gather(*requests)
            assert whole == openai == "echo: hello"
            assert "echo: hello" in stream
            assert "event: turn_ended" in stream
            assert await model_detail(user) == "memserver-small, mode json_schema"
        await ready(process, times=1)
        printed = process.log_text()
    console, first, loading, *_ = printed.splitlines()
    assert console.endswith(f" http://127.0.0.1:{process.port}/")
    assert first.endswith(f"on http://127.0.0.1:{process.port}/docs")
    assert loading == "The local model is loading; messages wait for it."
    assert "is not asked for" not in printed  # the circuit stayed closed


async def test_a_message_left_while_the_engine_loads_is_answered_after_the_next_start(
    folder: Path, engine: StandInEngine, settings: Settings, database: OneDatabase
) -> None:
    with server(folder, settings) as first:
        async with client(first) as user:
            agent = await user.create_agent()
            [request] = await started(database, user.post(agent, "hello"))
            assert await asyncio.to_thread(first.terminate) == 0
            assert (await request).json()["error"]["code"] == "server_stopping"
    assert turn_states(database) == ["waiting"]
    with server(folder, settings) as second:
        await let_go(engine)
        await eventually(lambda: turn_states(database) == ["done"])
        async with client(second) as user:
            history = await user.history(agent)
    assert [item["text"] for item in history] == ["hello", "echo: hello"]


async def test_an_engine_that_dies_is_waited_for_and_what_it_dies_of_twice_is_an_error(
    folder: Path, engine: StandInEngine, settings: Settings, database: OneDatabase
) -> None:
    with server(folder, settings) as process:
        await let_go(engine)
        await ready(process, times=1)  # an engine that dies before was never started well
        async with client(process) as user:
            agent = await user.create_agent()
            request = asyncio.create_task(user.say(agent, DEADLY_ONCE))
            await let_go(engine)
            assert await request == f"echo: {DEADLY_ONCE}"
            await ready(process, times=2)
            failing = asyncio.create_task(user.post(agent, DEADLY))
            await let_go(engine)
            error = (await failing).json()["error"]
            assert error["code"] == "model_unavailable"
            assert "local engine" in error["message"]
            assert str(engine.log) in error["hint"]
            assert "MEMSERVER_LLM" not in error["hint"]
            await let_go(engine)
            assert await user.say(agent, "still there?") == "echo: still there?"


async def test_an_engine_that_never_starts_is_given_up_and_its_turns_end_with_its_error(
    folder: Path, engine: StandInEngine, settings: Settings, database: OneDatabase
) -> None:
    with server(folder, settings) as process:
        async with client(process) as user:
            agent = await user.create_agent()
            [request] = await started(database, user.post(agent, "hello"))
            await let_go(engine, "die", "die", "die")
            answer = await request
            assert answer.status_code == 503
            error = answer.json()["error"]
            assert "it was told to die" in error["message"]
            assert str(engine.log) in error["hint"]
            assert "Check that MEMSERVER_LLM_BASE_URL" not in error["hint"]
            assert "it was told to die" in await model_detail(user)
        assert process.log_text().count("it is started again") == 2
        assert "it is given up" in process.log_text()
