"""A turn that kills its process is given up after the second time; one that was hit by chance is not."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, Held, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from memserver.watchdog import Watchdog
from tests.support.http_app import serving
from tests.support.processes import (
    CONTEXT_WINDOW,
    client,
    eventually,
    holding_model,
    rows,
    server,
    settings_on,
    turn_states,
)
from tests.support.server import OneDatabase
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.slow

STOP_SECONDS = 10


def freezes_when_told(prompt: Sequence[PromptMessage], _tools: Sequence[ToolSpec]) -> Step:
    text = last_user_text(prompt)
    return Call("freeze") if text == "freeze" else say(f"echo: {text}")


def never_answers(_prompt: Sequence[PromptMessage], _tools: Sequence[ToolSpec]) -> Step:
    return Held(say("too late"), asyncio.Event())


@contextmanager
def freezing_model() -> Iterator[str]:
    with serving(create_scripted_app(freezes_when_told, context_window=CONTEXT_WINDOW)) as url:
        yield url


async def test_a_turn_that_froze_its_process_until_it_was_killed_twice_is_given_up(
    folder: Path, database: OneDatabase
) -> None:
    with freezing_model() as url:
        settings = settings_on(
            database,
            url,
            lease_seconds=1,
            blocked_seconds=0.2,
            home=folder / "home",
            tools="tests.support.freezing_tool",
        )
        with server(folder, settings) as first:
            async with client(first) as user:
                agent = await user.create_agent()
                post = asyncio.create_task(user.post(agent, "freeze"))
                await eventually(lambda: "in freeze" in first.log_text())
                first.kill()
                await asyncio.gather(post, return_exceptions=True)
        outside = Watchdog(1, folder / "home" / "turns")
        key = UUID(agent).bytes + (1).to_bytes(8)
        with server(folder, settings) as second:
            await eventually(lambda: outside.blocked_by(key))
            second.kill()
        with server(folder, settings) as third:
            await eventually(lambda: turn_states(database) == ["failed"])
            async with client(third) as user:
                turn = (await user.http.get(f"/v1/agents/{agent}/turns/1")).json()
                assert await user.say(agent, "hello") == "echo: hello"
    assert turn["error"]["code"] == "turn_abandoned"
    assert rows(database, "SELECT attempts FROM turns WHERE turn = 1") == [(3,)]
    assert outside.blocked_by(key) == 0


async def test_a_turn_whose_process_was_killed_twice_by_chance_is_answered(
    folder: Path, database: OneDatabase, echo: ServerProcess
) -> None:
    with serving(create_scripted_app(never_answers, context_window=CONTEXT_WINDOW)) as url:
        settings = settings_on(database, url, lease_seconds=1, home=folder / "home")
        with server(folder, settings) as first:
            async with client(first) as user:
                agent = await user.create_agent()
                post = asyncio.create_task(user.post(agent, "hello"))
                await eventually(lambda: attempts(database) == 1)
                first.kill()
                await asyncio.gather(post, return_exceptions=True)
        with server(folder, settings) as second:
            await eventually(lambda: attempts(database) == 2)
            second.kill()
    with server(folder, settings_on(database, echo.url, lease_seconds=1, home=folder / "home")):
        await eventually(lambda: turn_states(database) == ["done"])
    assert attempts(database) == 3


async def test_a_turn_that_is_given_back_by_a_server_that_is_told_to_end_was_no_attempt(
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
            await asyncio.gather(post, return_exceptions=True)
    assert attempts(database) == 0


def attempts(database: OneDatabase) -> int:
    return sum(found for (found,) in rows(database, "SELECT attempts FROM turns"))
