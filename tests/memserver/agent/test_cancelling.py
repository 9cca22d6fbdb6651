"""A turn is cancelled: running, queued or waiting, from whichever process; what was committed stays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from typing_extensions import override

from memserver.llm.base import Reply
from memserver.storage import turn_writes
from memserver.storage.cancellation import STOPS_CHANNEL
from memserver.storage.database import Database
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from memserver.tools.tool import RunnableTool, ToolContext, make_tool
from tests.support.model_endpoint import serving_over_http
from tests.support.server import OneDatabase, Server, serving


class Thinking(ScriptedModel):
    """Keeps its first answer to itself, and says when it has stopped to think of it."""

    def __init__(self, *later: Any) -> None:
        self.held = Held(say("too late"), asyncio.Event())
        self.stopped = asyncio.Event()
        super().__init__([self.held, *later])

    @override
    async def call_tool(self, *args: Any, **kwargs: Any) -> Reply:
        try:
            return await super().call_tool(*args, **kwargs)
        except asyncio.CancelledError:
            self.stopped.set()
            raise


async def cancel(server: Server, agent: str, turn: int = 1) -> httpx2.Response:
    return await server.http.post(f"/v1/agents/{agent}/turns/{turn}/cancel")


async def deaf(_database: Database, *channels: str) -> AsyncIterator[tuple[str, str]]:
    await asyncio.Event().wait()
    yield STOPS_CHANNEL, ""


@pytest.mark.parametrize("whose", ["its own", "another", "another, unheard"])
async def test_a_running_turn_is_cancelled_by_any_process_and_the_next_message_is_answered(
    database: OneDatabase, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if whose == "another, unheard":
        monkeypatch.setattr(Database, "listen", deaf)
    model = Thinking(say("Here."))
    async with serving(database, model) as one, serving(database, model) as two:
        agent = await one.create_agent()
        asking = asyncio.create_task(one.say(agent, "Write a novel."))
        await model.held.reached.wait()
        server = one if whose == "its own" else two
        cancelled, again = [await cancel(server, agent) for _ in range(2)]
        answer = await asking
        await model.stopped.wait()
        assert (await one.say(agent, "Are you there?"))["text"] == "Here."
        ended = await cancel(two, agent, 2)
        stands = await two.get(f"{agent}/turns/1")
    assert (answer["stop_reason"], answer["text"], answer["steps"]) == ("cancelled", "", 0)
    assert (cancelled.status_code, again.status_code) == (200, 200)
    assert cancelled.json() == again.json() == stands
    assert (stands["state"], stands["stop_reason"], stands["error"]) == ("done", "cancelled", None)
    assert (ended.status_code, ended.json()["error"]["code"]) == (409, "turn_ended")
    assert "(message_sent)" in ended.json()["error"]["message"]


def hanging(started: asyncio.Event, stopped: asyncio.Event, *, inside: bool) -> RunnableTool:
    async def hang(context: ToolContext) -> str:
        """Hang."""
        if inside:
            tx = await context.transaction.get()
            await tx.execute("UPDATE agents SET name = 'half done'")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    return make_tool(hang, transactional=inside)


@pytest.mark.parametrize("inside", [False, True])
async def test_what_was_committed_stays_and_a_running_tool_is_ended(
    database: OneDatabase, inside: bool
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    note = {"section": "human", "content": "Name: Ada", "request_heartbeat": True}
    model = ScriptedModel([Call("working_context_append", note), Call("hang"), say("Yes.")])
    tool = hanging(started, stopped, inside=inside)
    async with serving(database, model, [tool]) as server:
        agent = await server.create_agent(name="whole")
        asking = asyncio.create_task(server.say(agent, "I am Ada."))
        await started.wait()
        assert (await cancel(server, agent)).json()["steps"] == (1 if inside else 2)
        answer = await asking
        await stopped.wait()
        assert (await server.say(agent, "And?"))["text"] == "Yes."
        history = (await server.get(f"{agent}/messages", order="asc"))["items"]
        assert (await server.get(agent))["name"] == "whole"
        context = await server.get(f"{agent}/working-context")
    calls = [each["tool_call"] for each in history if each["tool_call"]]
    states = ["done", "interrupted", "done"] if not inside else ["done", "done"]
    assert [call["state"] for call in calls] == states
    assert [each["position"] for each in answer["messages"]] == [1001, 1002][: len(states) - 1]
    assert "Ada" in context["sections"][1]["text"]
    read = [each.text for each in model.last_prompt if "cancelled while this ran" in each.text]
    assert len(read) == (0 if inside else 1)


async def test_a_queued_turn_is_cancelled_at_once_and_passed_over(database: OneDatabase) -> None:
    held = Held(say("one"), asyncio.Event())
    model = ScriptedModel([held, say("three")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        first = asyncio.create_task(server.say(agent, "first"))
        await held.reached.wait()
        url = f"/v1/agents/{agent}/messages"
        asked = {}
        for turn, text in ((2, "second"), (3, "third")):
            asked[text] = asyncio.create_task(server.http.post(url, json={"text": text}))
            while not server.rows("SELECT 1 FROM turns WHERE turn = %s", turn):
                await asyncio.to_thread(lambda: None)
        cancelled = await cancel(server, agent, 2)
        second = (await asked["second"]).json()
        assert not first.done()
        held.release.set()
        answers = [(await first)["text"], (await asked["third"]).json()["text"]]
        stands = await server.get(f"{agent}/turns/2")
        states = server.rows("SELECT state, stop_reason FROM turns ORDER BY turn")
    assert (second["stop_reason"], second["steps"]) == ("cancelled", 0)
    assert answers == ["one", "three"]
    assert len(model.seen) == 2
    assert stands == cancelled.json()
    assert states[1] == ("done", "cancelled")
    assert "second" in "".join(each.text for each in model.last_prompt)


@pytest.mark.parametrize("first", ["cancel", "commit"])
async def test_of_a_cancel_and_a_commit_at_the_same_moment_one_takes_effect(
    database: OneDatabase, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[httpx2.Response] = []
    commit = turn_writes.commit_step

    async def racing(tx: Any, lease: Any, change: Any) -> bool:
        """The cancel comes before the commit's statement, or waits for its transaction's end."""
        monkeypatch.setattr(turn_writes, "commit_step", commit)
        if first == "cancel":
            monkeypatch.setattr(server.services.worker, "stop", lambda *_: None)
            cancelled.append(await cancel(server, agent))
            return await commit(tx, lease, change)
        released = await commit(tx, lease, change)
        waiting.append(asyncio.create_task(cancel(server, agent)))
        while not server.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
            await asyncio.to_thread(lambda: None)
        return released

    waiting: list[asyncio.Task[httpx2.Response]] = []
    async with serving(database, ScriptedModel([say("Hello."), say("Yes.")])) as server:
        agent = await server.create_agent()
        monkeypatch.setattr(turn_writes, "commit_step", racing)
        answer = await server.say(agent, "Hi!")
        cancelled += [await each for each in waiting]
        history = await server.get(f"{agent}/messages", order="asc")
        assert (await server.say(agent, "And?"))["text"] == "Yes."
    texts = [each["text"] for each in history["items"]]
    if first == "cancel":
        assert (answer["stop_reason"], texts) == ("cancelled", ["Hi!"])
        assert cancelled[0].status_code == 200
    else:
        assert (answer["stop_reason"], texts) == ("message_sent", ["Hi!", "Hello."])
        assert cancelled[0].json()["error"]["code"] == "turn_ended"


@asynccontextmanager
async def silent_endpoint(closed: asyncio.Event) -> AsyncIterator[str]:
    """A model endpoint that never answers a prompt, and notices that its client hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/chat/completions" in head:
            while await reader.read(65536):
                pass
            closed.set()
        else:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"


async def test_the_models_endpoint_sees_its_request_end(database: OneDatabase) -> None:
    closed = asyncio.Event()
    async with silent_endpoint(closed) as url:
        settings = {"llm_mode": "tools", "llm_model": "m", "llm_context_window": 8192}
        async with serving_over_http(database, url, **settings) as server:
            agent = await server.create_agent()
            events = asyncio.create_task(server.events(agent, "Hi!"))
            while not server.rows("SELECT 1 FROM turns WHERE state = 'running'"):
                await asyncio.to_thread(lambda: None)
            assert (await cancel(server, agent)).status_code == 200
            kinds = await events
            await closed.wait()
    assert kinds[-1] == ("turn_ended", {"turn": 1, "steps": 0, "stop_reason": "cancelled"})


async def test_those_who_wait_for_a_deleted_agent_hear_of_it_at_once(
    database: OneDatabase,
) -> None:
    model = Thinking()
    async with serving(database, model) as one, serving(database, model) as two:
        agent = await one.create_agent()
        url, chat = f"/v1/agents/{agent}/messages", "/v1/chat/completions"
        stream = asyncio.create_task(one.events(agent, "Hi!"))
        await model.held.reached.wait()
        said = {"model": agent, "messages": [{"role": "user", "content": "Hello?"}]}
        bodies = {url: {"text": "And?"}, chat: said}
        waiting = [
            asyncio.create_task(server.http.post(path, json=bodies[path]))
            for server, path in ((one, url), (two, chat))
        ]
        while len(one.rows("SELECT 1 FROM turns")) < 3:
            await asyncio.to_thread(lambda: None)
        assert (await two.http.delete(f"/v1/agents/{agent}")).status_code == 204
        kinds = await stream
        answers = [await each for each in waiting]
        await model.stopped.wait()
    assert [kind for kind, _ in kinds] == ["turn_started", "error"]
    assert kinds[-1][1]["error"]["code"] == "not_found"
    assert [each.status_code for each in answers] == [404, 404]
    assert all("was deleted" in each.json()["error"]["message"] for each in answers)
