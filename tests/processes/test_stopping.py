"""SIGTERM: what a service manager sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from memserver.client import AsyncClient
from memserver.client.events import Event, MessageSaid, Reconnected
from tests.support.nightly import NIGHTLY
from tests.support.processes import (
    Endpoint,
    client,
    eventually,
    holding_model,
    rows,
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


async def test_the_callers_of_a_server_that_is_asked_to_end_read_that_the_message_is_kept(
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
            path, body = f"/v1/agents/{agent}/messages", {"text": "and", "stream": True}
            async with user.http.stream("POST", path, json=body) as stream:
                ending = asyncio.create_task(asyncio.to_thread(process.terminate, STOP_SECONDS))
                lines = [line async for line in stream.aiter_lines() if line.startswith("data: ")]
            assert await ending == 0
            [answer] = await asyncio.gather(post, return_exceptions=True)
        assert "Traceback" not in process.log_text()
        assert isinstance(answer, httpx2.Response)
        assert answer.status_code == 503
        assert answer.json()["error"]["hint"]
        last = json.loads(lines[-1].removeprefix("data: "))
        assert last["error"] == answer.json()["error"]
        assert last["error"]["code"] == "server_stopping"


async def test_an_idle_server_asked_to_end_ends_at_once(
    folder: Path, database: OneDatabase, echo: Endpoint
) -> None:
    with server(folder, settings_on(database, echo.url)) as process:
        assert await asyncio.to_thread(process.terminate, STOP_SECONDS) == 0
        await eventually(lambda: not process.pids())


async def test_a_stopped_servers_turns_are_resumed_by_the_other_at_once_and_its_streams_there(
    folder: Path, database: OneDatabase
) -> None:
    # Nobody waits for leases to expire, nor looks for them meanwhile.
    with (
        holding_model() as model,
        server(folder, settings_on(database, model.url, lease_seconds=300)) as one,
        server(folder, settings_on(database, model.url, lease_seconds=300)) as two,
    ):
        async with AsyncClient([one.url, two.url]) as user, AsyncClient(two.url) as other:
            agent = (await user.agents.create()).id
            async with (
                user.messages.stream(agent, "first") as first,
                user.messages.stream(agent, "second") as second,
            ):
                resumed = asyncio.create_task(_events(first))
                await eventually(lambda: model.asked)
                waiting = asyncio.create_task(_events(second))
                await eventually(lambda: len(turn_states(database)) == 2)
                async with other.turns.events(agent, 1) as there:
                    watching = asyncio.create_task(_events(there))
                    assert await asyncio.to_thread(one.terminate, STOP_SECONDS) == 0
                    events = [*await resumed, *await waiting]
                    seen = await watching
    said = [event.text for event in events if isinstance(event, MessageSaid)]
    assert said == ["2: first", "3: second"]
    assert [event.text for event in seen if isinstance(event, MessageSaid)] == said[:1]
    assert [type(event) for event in events].count(Reconnected) == 2
    assert rows(database, "SELECT attempts FROM turns ORDER BY turn") == [(1,), (1,)]


async def _events(stream: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in stream]
