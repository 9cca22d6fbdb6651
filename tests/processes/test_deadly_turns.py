"""A turn that kills its process is given up after the second time; one that was hit by chance is not."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, Held, Rule, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from memserver.watchdog import Watchdog
from tests.support.http_app import serving
from tests.support.processes import (
    CONTEXT_WINDOW,
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


class Obedient:
    """A model that calls the tool that it should, and once echoes; it keeps "hello" and "look_around" to itself first."""

    def __init__(self, *, holding: bool = False) -> None:
        self.holding = holding
        self.asked: list[str] = []
        self._held: list[Callable[[], object]] = []

    def release(self) -> None:
        """Hold nothing any more."""
        self.holding = False
        for let_go in self._held:
            let_go()

    def __call__(self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        text = last_user_text(prompt)
        self.asked.append(text)
        if prompt[-1].role == "tool" and text == "look_around":
            return say(prompt[-1].text)
        word = {"word": "kept"} if text == "look_around" else {}
        named = text in {spec.name for spec in tools}
        step = Call(text, {**word, "request_heartbeat": True}) if named else say(f"echo: {text}")
        if not (self.holding and text in {"hello", "look_around"}):
            return step
        released = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._held.append(partial(loop.call_soon_threadsafe, released.set))
        return Held(step, released)


def never_answers(_prompt: Sequence[PromptMessage], _tools: Sequence[ToolSpec]) -> Step:
    return Held(say("too late"), asyncio.Event())


@contextmanager
def serving_model(model: Rule) -> Iterator[str]:
    with serving(create_scripted_app(model, context_window=CONTEXT_WINDOW)) as url:
        yield url


async def test_a_turn_that_froze_its_process_until_it_was_killed_twice_is_given_up(
    folder: Path, database: OneDatabase
) -> None:
    with serving_model(Obedient()) as url:
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


@pytest.mark.parametrize("deadly", ["leave", "be_killed"])
async def test_a_turn_that_ends_its_process_twice_is_given_up_and_one_beside_it_is_answered(
    folder: Path, database: OneDatabase, deadly: str
) -> None:
    model = Obedient(holding=True)
    with serving_model(model) as url:
        settings = settings_on(
            database, url, lease_seconds=1, home=folder / "home", tools="tests.support.deadly_tools"
        )
        with server(folder, settings) as first:
            async with client(first) as user:
                killer, innocent = await user.create_agent(), await user.create_agent()
                beside = asyncio.create_task(user.post(innocent, "hello"))
                await eventually(lambda: "hello" in model.asked)
                await asyncio.gather(user.post(killer, deadly), beside, return_exceptions=True)
                await eventually(lambda: first.ended)
        model.release()
        with server(folder, settings) as second:
            await eventually(lambda: set(turn_states(database)) == {"failed", "done"})
            async with client(second) as user:
                turn = (await user.http.get(f"/v1/agents/{killer}/turns/1")).json()
                history = await user.history(innocent)
                assert await user.say(killer, "hello") == "echo: hello"
                another = await user.post(innocent, deadly)
            assert not second.ended
    assert turn["error"]["code"] == "turn_abandoned"
    assert another.json()["error"]["code"] == "turn_abandoned"
    assert "echo: hello" in str(history)
    assert rows(database, "SELECT attempts FROM turns WHERE turn = 1") == [(2,), (2,)]


async def test_a_turn_whose_process_was_killed_by_chance_calls_its_tools_in_another_process(
    folder: Path, database: OneDatabase
) -> None:
    model = Obedient(holding=True)
    with serving_model(model) as url:
        settings = settings_on(
            database, url, lease_seconds=1, home=folder / "home", tools="tests.support.deadly_tools"
        )
        with server(folder, settings) as first:
            async with client(first) as user:
                agent = await user.create_agent()
                post = asyncio.create_task(user.post(agent, "look_around"))
                await eventually(lambda: model.asked)
                first.kill()
                await asyncio.gather(post, return_exceptions=True)
        model.release()
        with server(folder, settings) as second:
            await eventually(lambda: turn_states(database) == ["done"])
            async with client(second) as user:
                history = await user.history(agent)
            assert "printed by a tool" in second.log_text()
            pids = second.pids()
    [result] = [
        json.loads(each["tool_call"]["result"])
        for each in history
        if each["tool_call"] and each["tool_call"]["name"] == "look_around"
    ]
    assert result["text"].endswith("kept")
    assert "nowhere" in result["error"]
    assert result["pid"] not in pids


async def test_a_turn_whose_process_was_killed_twice_by_chance_is_answered(
    folder: Path, database: OneDatabase, echo: Endpoint
) -> None:
    with serving_model(never_answers) as url:
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


async def test_a_turn_that_is_given_back_by_a_server_that_is_asked_to_end_was_no_attempt(
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
