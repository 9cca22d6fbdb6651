"""Lines of the log say which request, agent and turn they belong to."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.config import DictConfigurator

import pytest

from memserver.telemetry import ids
from memserver.telemetry.logs import ACCESS, Form, logging_config
from memserver.testing.scripted import Held, ScriptedModel, say
from tests.support.processes import eventually
from tests.support.server import OneDatabase, serving


@contextmanager
def logged(form: Form, *, access: bool = False) -> Iterator[io.StringIO]:
    """What memserver logs while the block runs, as the settings' handler writes it."""
    config = DictConfigurator(logging_config("INFO", form, access=access))
    handler = logging.StreamHandler(stream := io.StringIO())
    handler.setFormatter(config.configure_formatter(config.config["formatters"][form]))
    handler.addFilter(config.configure_filter(config.config["filters"]["ids"]))
    ours = [logging.getLogger("memserver"), logging.getLogger(ACCESS)]
    before = [each.level for each in ours]
    for each, level in zip(ours, ["INFO", "INFO" if access else "CRITICAL"], strict=True):
        each.setLevel(level)
    ours[0].addHandler(handler)
    try:
        yield stream
    finally:
        ours[0].removeHandler(handler)
        for each, level in zip(ours, before, strict=True):
            each.setLevel(level)


async def test_lines_of_two_turns_that_one_task_serves_have_each_its_own_request_and_turn(
    database: OneDatabase,
) -> None:
    held = Held("{}", asyncio.Event())
    async with serving(database, ScriptedModel([held, say("one"), "{}", say("two")])) as server:
        agent = await server.create_agent()
        with logged("json", access=True) as log:
            first = asyncio.create_task(server.say(agent, "hello", **{"X-Request-Id": "a"}))
            await held.reached.wait()
            second = asyncio.create_task(server.say(agent, "hello", **{"X-Request-Id": "b"}))
            await eventually(lambda: server.rows("SELECT 1 FROM turns WHERE turn = 2"))
            held.release.set()
            await asyncio.gather(first, second)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    found = [(each["message"][:7], each["request_id"], each["turn"]) for each in lines]
    posts = [each for each in lines if each["logger"] == ACCESS]
    assert sorted(found) == [
        ("Invalid", "a", 1),
        ("Invalid", "b", 2),
        ("POST '/", "a", 1),
        ("POST '/", "b", 2),
    ]
    assert {each["agent"] for each in lines} == {agent}
    assert {(each["tenant"], each["level"]) for each in lines} == {("default", "INFO")}
    assert {(each["method"], each["status"]) for each in posts} == {("POST", 200)}


async def test_a_turn_that_another_process_serves_has_the_id_of_the_request_that_posted_it(
    database: OneDatabase,
) -> None:
    held = Held("{}", asyncio.Event())
    busy = ScriptedModel([held, say("one"), "{}", say("two")])
    async with (
        serving(database, busy) as serves,
        serving(database, ScriptedModel()) as takes,
    ):
        agent = await serves.create_agent()
        with logged("json") as log:
            first = asyncio.create_task(serves.say(agent, "hello", **{"X-Request-Id": "a"}))
            await held.reached.wait()
            second = asyncio.create_task(takes.say(agent, "hello", **{"X-Request-Id": "b"}))
            await eventually(lambda: serves.rows("SELECT 1 FROM turns WHERE turn = 2"))
            held.release.set()
            await asyncio.gather(first, second)
    read = [json.loads(line) for line in log.getvalue().splitlines()]
    lines = [each for each in read if "turn" in each]  # a busy machine adds the watchdog's
    found = [(each["message"][:7], each["request_id"], each["turn"]) for each in lines]
    assert found == [("Invalid", "a", 1), ("Invalid", "b", 2)]


async def test_a_request_without_a_usable_id_gets_one_and_without_the_setting_no_line(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        with logged("text") as log:
            answers = [
                await server.http.get("/v1/agents", headers={"X-Request-Id": given})
                for given in ("", "two words", "x" * 101)
            ]
    given = {each.headers["X-Request-Id"] for each in answers}
    assert len(given) == 3
    assert all(len(each) == 32 for each in given)
    assert log.getvalue() == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_has_its_ids_before_its_traceback(form: Form) -> None:
    with logged(form) as log, ids.bound(turn=3, job_name="compact"):
        try:
            raise ValueError("broken\nin two")
        except ValueError:
            logging.getLogger("memserver.x").exception("It failed.")
    if form == "json":
        [line] = log.getvalue().splitlines()
        found = json.loads(line)
        assert (found["message"], found["turn"], found["level"]) == ("It failed.", 3, "ERROR")
        assert found["exception"].startswith("Traceback")
    else:
        first = log.getvalue().splitlines()[0]
        assert first.endswith("ERROR memserver.x: It failed. [turn=3 job_name=compact]")
