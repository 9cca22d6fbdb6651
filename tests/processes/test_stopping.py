"""SIGTERM: what a service manager sends."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from tests.support.nightly import NIGHTLY
from tests.support.processes import (
    Endpoint,
    client,
    eventually,
    holding_model,
    server,
    settings_on,
    turn_states,
)
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow

STOP_SECONDS = 10


@pytest.mark.parametrize("workers", ["1", "2"] if NIGHTLY else ["2"])
async def test_a_server_asked_to_end_during_a_turn_ends_and_the_next_one_answers_the_message(
    folder: Path, database: OneDatabase, echo: Endpoint, workers: str
) -> None:
    with holding_model() as model:
        settings = settings_on(database, model.url)
        with server(folder, settings, "--workers", workers) as first:
            async with client(first) as user:
                agent = await user.create_agent()
                post = asyncio.create_task(user.post(agent, "hello"))
                await eventually(lambda: model.asked)
                status = await asyncio.to_thread(first.terminate, STOP_SECONDS)
                await asyncio.gather(post, return_exceptions=True)
            assert status == 0
            await eventually(lambda: not first.pids())
    assert turn_states(database) == ["running"]
    settings = settings_on(database, echo.url)
    with server(folder, settings) as second:
        await eventually(lambda: turn_states(database) == ["done"])
        async with client(second) as user:
            history = await user.history(agent)
    assert [item["text"] for item in history] == ["hello", "echo: hello"]


async def test_the_caller_of_a_server_that_is_asked_to_end_reads_that_the_message_is_kept(
    folder: Path, database: OneDatabase
) -> None:
    with (
        holding_model() as model,
        server(folder, settings_on(database, model.url)) as process,
    ):
        async with client(process) as user:
            agent = await user.create_agent()
            post = asyncio.create_task(user.post(agent, "hello"))
            await eventually(lambda: model.asked)
            assert await asyncio.to_thread(process.terminate, STOP_SECONDS) == 0
            [answer] = await asyncio.gather(post, return_exceptions=True)
        assert "Traceback" not in process.log_text()
        assert isinstance(answer, httpx2.Response)
        assert answer.status_code == 503
        assert answer.json()["error"]["hint"]


async def test_an_idle_server_asked_to_end_ends_at_once(
    folder: Path, database: OneDatabase, echo: Endpoint
) -> None:
    with server(folder, settings_on(database, echo.url)) as process:
        assert await asyncio.to_thread(process.terminate, STOP_SECONDS) == 0
        await eventually(lambda: not process.pids())
