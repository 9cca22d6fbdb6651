"""What the clients do when the way to the server breaks: nothing is lost, and nothing is said twice."""

import re
from dataclasses import replace

import httpx2
import pytest

from memserver.client import Client, OtherError, Retries, ServerUnreachable, UnexpectedAnswer
from memserver.client.events import (
    MessageDelta,
    MessageSaid,
    Reconnected,
    Thought,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    UsageCounted,
)
from memserver.client.models import Agent, Answer
from memserver.client.requests import get, post
from memserver.errors import LeaseLost, ModelUnavailable
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.client import once, served
from tests.support.server import OneDatabase

NOWHERE = "http://127.0.0.1:9"
SEARCH = Call(
    "recall_memory_search",
    {"query": "x", "request_heartbeat": True, "inner_thought": "Let me look."},
)


async def test_a_message_whose_answer_was_lost_is_sent_again_and_stored_once(
    connect, database: OneDatabase
):
    model = ScriptedModel([say("Hello.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        server.line.cut = once("POST", "/messages", 0)
        answer = await client.messages.send(agent.id, "Hi")
        assert answer.text == "Hello."
        history = [message.text async for message in client.messages.all(agent.id)]
        assert history == ["Hello.", "Hi"]
        assert len(model.seen) == 1
        keys = {each.get("idempotency-key") for each in server.line.headers[-3:-1]}
        assert len(keys) == 1
        assert None not in keys


async def test_what_was_created_though_its_answer_was_lost_is_there_once(
    connect, database: OneDatabase
):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        server.line.cut = once("POST", "/agents", 0)
        made = await client.agents.create("ada")
        assert server.line.log == [("POST", "/v1/agents")] * 2
        assert (await client.agents.list()).items == [made]
        server.line.cut = once("GET", "/agents", 0)
        assert len((await client.agents.list()).items) == 1


async def test_a_server_that_is_not_there_is_said_after_some_tries(connect):
    client = connect(NOWHERE)
    with pytest.raises(ServerUnreachable, match=re.escape("127.0.0.1:9")) as failure:
        await client.agents.create()
    assert failure.value.code == "server_unreachable"
    with pytest.raises(ServerUnreachable):
        async for _ in client.messages.stream("a", "b"):
            pass


async def test_a_turn_is_followed_by_typed_events(connect, database: OneDatabase):
    model = ScriptedModel([SEARCH, say("Hello, Ada.", thought="A guest.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        async with client.messages.stream(agent.id, "Hi") as stream:
            events = [event async for event in stream]
        assert stream.turn == 1
        assert stream.last_event_id == 1002
        assert isinstance(events[0], TurnStarted)
        deltas = [event.text for event in events if isinstance(event, MessageDelta)]
        [said] = [event for event in events if isinstance(event, MessageSaid)]
        assert "".join(deltas) == said.text == "Hello, Ada."
        assert isinstance(events[-2], UsageCounted)
        assert events[-1] == TurnEnded(turn=1, steps=2, stop_reason="message_sent")
        async with client.turns.events(agent.id, 1, after=1001) as rest:
            again = [event async for event in rest]
        assert [event for event in again if isinstance(event, MessageSaid | Thought)] == [
            Thought(position=1002, text="A guest."),
            said,
        ]
        assert not [event for event in again if isinstance(event, ToolReturned)][1:]


@pytest.mark.parametrize("pieces", range(1, 8))
async def test_a_stream_that_breaks_continues_where_it_was(
    connect, database: OneDatabase, pieces: int
):
    model = ScriptedModel([SEARCH, say("Hello, Ada.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        server.line.cut = once("POST", "/messages", pieces)
        async with client.messages.stream(agent.id, "Hi") as stream:
            events = [event async for event in stream]
        kinds = [type(event) for event in events if not isinstance(event, MessageDelta)]
        assert kinds.count(Reconnected) == 1
        for kind in (TurnStarted, Thought, MessageSaid, UsageCounted, TurnEnded):
            assert kinds.count(kind) == 1, kind
        assert kinds.count(ToolReturned) == 2
        history = [message.role async for message in client.messages.all(agent.id)]
        assert history.count("user") == 1


async def test_a_stream_that_breaks_before_anything_came_is_requested_by_its_key(
    connect, database: OneDatabase
):
    with served(database, ScriptedModel([say("Hello.")])) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        server.line.cut = once("POST", "/messages", 0)
        async with client.messages.stream(agent.id, "Hi", idempotency_key="k") as stream:
            events = [event async for event in stream]
        assert [event.text for event in events if isinstance(event, MessageSaid)] == ["Hello."]
        assert len(server.model.seen) == 1


async def test_a_stream_that_breaks_again_and_again_is_given_up(connect, database: OneDatabase):
    with served(database, ScriptedModel([say("Hello.")])) as server:
        client = connect(server.url, retries=Retries(most=2, first_pause=0))
        agent = await client.agents.create()
        server.line.cut = lambda method, path: None if path.endswith("/agents") else 0
        with pytest.raises(ServerUnreachable):
            async for _ in client.messages.stream(agent.id, "Hi"):
                pass
        asked = [path for _, path in server.line.log if not path.endswith("/agents")]
        assert len(asked) == 3


async def test_a_failed_turn_ends_its_stream_with_the_error(connect, database: OneDatabase):
    with served(database, ScriptedModel([ModelUnavailable("It is down.")])) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        with pytest.raises(ModelUnavailable, match="It is down"):
            async for _ in client.messages.stream(agent.id, "Hi"):
                pass


async def test_an_api_key_is_sent_as_a_bearer_token(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url + "/v1/", api_key="secret")
        await client.health()
        assert server.line.headers[-1]["authorization"] == "Bearer secret"
        assert server.line.log == [("GET", "/v1/health")]


def answer(status: int, **content: object) -> httpx2.Response:
    request = httpx2.Request("GET", "http://memserver/v1/agents")
    headers = content.pop("headers", None)
    return httpx2.Response(status, request=request, headers=headers, **content)  # type: ignore[arg-type]


def error(code: str) -> dict[str, object]:
    return {"error": {"code": code, "message": "No.", "hint": ""}}


def test_only_what_may_pass_is_tried_again_and_not_for_ever():
    retries = Retries(most=2, first_pause=1, longest_pause=1.5)
    send = post("/agents/{agent}/messages", Answer, {"text": "b"}, agent="a")
    assert (
        0.5 <= (retries.after_answer(send, 1, answer(503, json=error("server_stopping"))) or 0) <= 1
    )
    assert (
        0.75 <= (retries.after_answer(send, 2, answer(503, json=error("lease_lost"))) or 0) <= 1.5
    )
    assert retries.after_answer(send, 3, answer(503, json=error("server_stopping"))) is None
    assert retries.after_answer(send, 1, answer(503, json=error("model_unavailable"))) is None
    assert retries.after_answer(send, 1, answer(500, json=error("internal_error"))) is None
    assert retries.after_answer(send, 1, answer(502, text="<html>")) is not None
    keyless = replace(post("/agents", Agent, {}), key=None)
    assert (
        retries.after_answer(post("/agents", Agent, {}), 1, answer(502, text="<html>")) is not None
    )
    assert retries.after_answer(keyless, 1, answer(502, text="<html>")) is None
    limited = answer(429, json=error("rate_limited"), headers={"Retry-After": "7"})
    assert retries.after_answer(keyless, 1, limited) == 7
    assert (
        retries.after_answer(
            get("/agents/{agent}", Agent, agent="a"), 1, answer(404, json=error("not_found"))
        )
        is None
    )


def test_an_error_keeps_its_code_whether_it_has_a_class_or_not():
    def serve(code: str) -> Client:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(409, json=error(code)))
        return Client(http=httpx2.Client(transport=transport))

    with pytest.raises(LeaseLost):
        serve("lease_lost").health()
    with pytest.raises(OtherError) as unknown:
        serve("made_up_tomorrow").health()
    assert unknown.value.code == "made_up_tomorrow"


def test_an_answer_of_somebody_else_is_distinguished():
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, text="<html>Welcome!"))
    with pytest.raises(UnexpectedAnswer, match="Welcome"):
        Client(http=httpx2.Client(transport=transport)).health()


@pytest.mark.parametrize("read", [1, 2, 4, 6, 9])
async def test_a_stream_that_was_left_is_resumed_where_it_was(
    connect, database: OneDatabase, read: int
):
    with served(database, ScriptedModel([SEARCH, say("Hello, dear Ada.")])) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        events = []
        async with client.messages.stream(agent.id, "Hi") as stream:
            async for event in stream:
                events.append(event)
                if len(events) == read:
                    break
        async with stream.resumed() as rest:
            events += [event async for event in rest]
        kinds = [type(event) for event in events if not isinstance(event, MessageDelta)]
        assert Reconnected not in kinds
        for kind in (TurnStarted, Thought, MessageSaid, UsageCounted, TurnEnded):
            assert kinds.count(kind) == 1, kind
        assert len(server.model.seen) == 2
