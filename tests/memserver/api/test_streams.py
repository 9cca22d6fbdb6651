"""Streams of all three routes: what keeps them open, what their lines hold, and how they end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from memserver.errors import ModelUnavailable
from memserver.testing.scripted import ScriptedModel, say
from tests.support.client import served
from tests.support.once_held import OnceHeld
from tests.support.server import OneDatabase

ROUTES = ("native", "chat", "responses")
LINE_ENDS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"


@dataclass
class Asking:
    """A client, and the agent that it talks with."""

    http: httpx2.AsyncClient
    agent: str


@asynccontextmanager
async def streaming(
    database: OneDatabase, model: ScriptedModel, route: str, *, addressed: str = "", **settings: Any
) -> AsyncIterator[tuple[httpx2.Response, "Asking"]]:
    """The head of a stream's answer, whose body is still to be read, and who asks."""
    with served(database, model, **settings) as server:
        async with httpx2.AsyncClient(base_url=f"{server.url}/v1", timeout=60) as http:
            agent = (await http.post("/agents", json={})).json()["id"]
            said = {"messages": [{"role": "user", "content": "Hi"}], "input": "Hi", "text": "Hi"}
            path, names = {
                "native": (f"/agents/{agent}/messages", ["text"]),
                "chat": ("/chat/completions", ["messages"]),
                "responses": ("/responses", ["input"]),
            }[route]
            body = {name: said[name] for name in names} | {"stream": True}
            if route != "native":
                body["model"] = agent + addressed
            async with http.stream("POST", path, json=body) as answer:
                assert answer.status_code == 200, await answer.aread()
                yield answer, Asking(http, agent)


def data_in(text: str) -> list[Any]:
    """What the data lines hold, for a reader who takes every line's end in Unicode for one."""
    lines = [line for line in text.splitlines() if line and not line.startswith(":")]
    fields = [line.partition(": ") for line in lines]
    assert {name for name, _, _ in fields} <= {"event", "id", "data"}
    return [json.loads(value) for name, _, value in fields if name == "data" and value != "[DONE]"]


def spoken(route: str, text: str) -> str:
    """What the agent said in a stream."""
    found = data_in(text)
    if route == "native":
        return "".join(each["text"] for each in found if "tool_call" in each)
    if route == "chat":
        return "".join(each["choices"][0]["delta"].get("content", "") for each in found)
    whole: str = found[-1]["response"]["output"][0]["content"][0]["text"]
    return whole


def error_in(route: str, text: str) -> dict[str, str]:
    """With what a stream ended."""
    found = data_in(text)
    last = next(each for each in found if "error" in each) if route == "native" else found[-1]
    error: dict[str, str] = last.get("response", last)["error"]
    return error


@pytest.mark.parametrize("route", ROUTES)
async def test_a_stream_has_its_head_at_once_and_comments_while_the_model_thinks(
    database: OneDatabase, route: str
) -> None:
    model = OnceHeld(say("Hello."))
    heard = ""
    async with streaming(database, ScriptedModel(model), route, stream_ping_seconds=0.02) as (
        answer,
        _,
    ):
        async for piece in answer.aiter_text():
            heard += piece
            if heard.count(": ping\n\n") == 2:
                model.let_go()
    assert heard.count(": ping\n\n") >= 2
    assert spoken(route, heard) == "Hello."
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers.get("memserver-turn") == ("1" if route == "native" else None)


@pytest.mark.parametrize("route", ["chat", "responses"])
async def test_an_answer_that_is_not_remembered_keeps_its_stream_open_too(
    database: OneDatabase, route: str
) -> None:
    held = OnceHeld("Hello.")
    model, asked = ScriptedModel(summary=held), {"addressed": "@no-memory"}
    heard = ""
    async with streaming(database, model, route, stream_ping_seconds=0.02, **asked) as (answer, _):
        async for piece in answer.aiter_text():
            heard += piece
            if ": ping" in heard:
                held.let_go()
    assert spoken(route, heard) == "Hello."


@pytest.mark.parametrize("route", ROUTES)
async def test_no_line_end_of_unicode_breaks_a_line_of_a_stream(
    database: OneDatabase, route: str
) -> None:
    async with streaming(database, ScriptedModel([say(LINE_ENDS)]), route) as (answer, _):
        text = (await answer.aread()).decode()
    assert spoken(route, text) == LINE_ENDS


@pytest.mark.parametrize("route", ROUTES)
async def test_a_turn_that_fails_later_ends_its_stream_with_an_error_in_the_routes_form(
    database: OneDatabase, route: str
) -> None:
    model = OnceHeld(ModelUnavailable("The model is down."))
    heard = ""
    async with streaming(database, ScriptedModel(model), route, stream_ping_seconds=0.02) as (
        answer,
        _,
    ):
        async for piece in answer.aiter_text():
            heard += piece
            if ": ping" in piece:
                model.let_go()
    assert error_in(route, heard)["message"] == "The model is down."
    assert ("event: response.failed" in heard) is (route == "responses")


@pytest.mark.parametrize("route", ROUTES)
async def test_a_cancelled_turn_ends_its_stream_in_the_routes_form(
    database: OneDatabase, route: str
) -> None:
    model = ScriptedModel(OnceHeld(say("Too late.")))
    async with streaming(database, model, route, stream_ping_seconds=0.02) as (answer, asking):
        path = f"/agents/{asking.agent}/turns/1"
        assert (await asking.http.post(f"{path}/cancel")).status_code == 200
        heard = (await answer.aread()).decode()
        if route == "responses":
            last = data_in(heard)[-1]["response"]
            again = (await asking.http.get(f"/responses/{last['id']}")).json()
            assert again["status"] == last["status"] == "cancelled"
    last = data_in(heard)[-1]
    said = last if route == "native" else last.get("response", last)["memserver"]
    assert said["stop_reason"] == "cancelled"
    assert "Too late." not in heard
    assert ("event: response.incomplete" in heard) is (route == "responses")


@pytest.mark.parametrize("route", ["chat", "responses"])
async def test_a_deleted_agent_ends_its_stream_with_an_error_in_the_routes_form(
    database: OneDatabase, route: str
) -> None:
    model = ScriptedModel(OnceHeld(say("Too late.")))
    async with streaming(database, model, route, stream_ping_seconds=0.02) as (answer, asking):
        assert (await asking.http.delete(f"/agents/{asking.agent}")).status_code == 204
        heard = (await answer.aread()).decode()
    assert error_in(route, heard)["message"] == "The agent was deleted, and its turns with it."
