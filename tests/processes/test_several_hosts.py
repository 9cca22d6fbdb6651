"""Two hosts, each with a home of its own, over one Postgres: whichever is asked, the answer is the same."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from memserver.client import AsyncClient
from memserver.client.events import Event, MessageDelta, MessageSaid, TurnEnded
from memserver.testing.scripted import Call, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from tests.support.halting import HaltingEndpoint, halting
from tests.support.http_app import serving
from tests.support.nightly import NIGHTLY
from tests.support.processes import CONTEXT_WINDOW, eventually, rows, server, settings_on
from tests.support.server import OneDatabase
from tests.support.servers import ServerProcess, temporary_folder

pytestmark = pytest.mark.slow

NOTE = "Note it."
UNDONE = """SELECT 1 FROM procrastinate_jobs
    WHERE status IN ('todo', 'doing') AND coalesce(scheduled_at, now()) <= now()"""
LONG = "a text that is long enough to come in several pieces, and then some"


def answer(prompt: Any, tools: Any) -> Step:
    """Echoes; what is to be noted it appends first."""
    text = last_user_text(prompt)
    if text == NOTE and prompt[-1].role == "user":
        return Call("note", {})
    return say(f"echo: {text}")


class Receiver:
    """Of webhooks."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.ids.append(Request(scope, receive).headers["webhook-id"])
        await Response(status_code=204)(scope, receive, send)


@dataclass
class Hosts:
    one: ServerProcess
    two: ServerProcess
    model: HaltingEndpoint
    database: OneDatabase

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
        async with AsyncClient(self.one.url) as first, AsyncClient(self.two.url) as second:
            yield first, second


def start(stack: ExitStack, folder: Path, database: OneDatabase) -> Hosts:
    model = stack.enter_context(halting(create_scripted_app(answer, context_window=CONTEXT_WINDOW)))
    model.halts = False
    processes = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        settings = settings_on(
            database, model.url, home=folder / name, lease_seconds=2, tool_networks="127.0.0.0/8"
        )
        processes.append(stack.enter_context(server(folder / name, settings)))
    return Hosts(*processes, model, database)


@pytest.fixture(scope="module")
def both(shared_database: OneDatabase) -> Iterator[Hosts]:
    with temporary_folder() as folder, ExitStack() as stack:
        yield start(stack, folder, shared_database)


async def up_to_a_delta(stream: AsyncIterator[Event]) -> list[Event]:
    """The events to the first piece of text, and no further."""
    found: list[Event] = []
    while not (found and isinstance(found[-1], MessageDelta)):
        found.append(await anext(stream))
    return found


def texts(events: list[Event], kind: type[MessageDelta] | type[MessageSaid]) -> list[str]:
    return [event.text for event in events if isinstance(event, kind)]


async def test_what_one_host_generates_streams_from_the_other_while_it_is_generated(
    both: Hosts,
) -> None:
    both.model.halts = True
    async with both.clients() as (first, second):
        agent = (await first.agents.create()).id
        async with first.messages.stream(agent, LONG) as here:
            began = await up_to_a_delta(here)
            async with second.turns.events(agent, 1) as there:
                heard = await up_to_a_delta(there)
                assert texts(heard, MessageDelta) == texts(began, MessageDelta)
                both.model.let_go()
                rest = [event async for event in there]
    assert texts(rest, MessageSaid) == [f"echo: {LONG}"]
    assert isinstance(rest[-1], TurnEnded)


async def test_what_is_posted_at_one_host_streams_there_while_the_other_generates_it(
    both: Hosts,
) -> None:
    both.model.halts = True
    async with both.clients() as (first, second):
        agent = (await first.agents.create()).id
        async with (
            first.messages.stream(agent, f"before {LONG}") as before,
            second.messages.stream(agent, LONG) as stream,
        ):
            await up_to_a_delta(before)
            waiting = asyncio.create_task(up_to_a_delta(stream))
            await eventually(lambda: len(turns(both, agent)) == 2)
            both.model.let_go()
            assert texts(await waiting, MessageDelta)
            assert turns(both, agent)[1] == "running"
            both.model.let_go()
            rest = [event async for event in stream]
    assert texts(rest, MessageSaid) == [f"echo: {LONG}"]


async def test_calls_are_approved_and_turns_cancelled_at_the_other_host(both: Hosts) -> None:
    both.model.halts = False
    async with both.clients() as (first, second):
        await first.tools.create_webhook("note", "Notes.", "http://127.0.0.1:9/note")
        agent = (await first.agents.create()).id
        await second.tools.attach(agent, "note", approval=True)
        asked = await first.messages.send(agent, NOTE)
        assert asked.stop_reason == "requires_action"
        [call] = (await second.calls.list(agent)).items
        denied = await second.calls.deny(agent, call.call_id, "No.")
        assert denied.text == f"echo: {NOTE}"
        both.model.halts = True
        async with first.messages.stream(agent, LONG) as stream:
            await up_to_a_delta(stream)
            cancelled = await second.turns.cancel(agent, 2)
            rest = [event async for event in stream]
        both.model.let_go()
    assert cancelled.stop_reason == "cancelled"
    assert isinstance(rest[-1], TurnEnded)
    assert rest[-1].stop_reason == "cancelled"


async def test_timers_documents_and_webhooks_of_either_host_are_worked_once(both: Hosts) -> None:
    both.model.halts = False
    receiver = Receiver()
    with serving(receiver) as url:
        async with both.clients() as clients:
            first, second = clients
            hook = await first.webhooks.create(url, ["turn.ended", "document.ready"])
            agent = (await second.agents.create()).id
            for number, client in enumerate(clients * 3):
                await client.timers.create(agent, in_seconds=1, text=f"timer {number}")
                file = f"Fact {number}.".encode()
                await client.documents.upload_to_agent(agent, file, f"fact{number}.txt")
            await eventually(lambda: len(receiver.ids) >= 12)
            await eventually(lambda: not rows(both.database, UNDONE))
            await first.webhooks.delete(hook.id)
            said = [each.text async for each in first.messages.all(agent, order="asc")]
    events = sorted(text for text in said if text.startswith("[event]"))
    assert events == [f"[event] timer: timer {number}" for number in range(6)]
    passages = "SELECT content FROM passages p JOIN collections c ON c.id = p.collection_id"
    assert sorted(text for (text,) in rows(both.database, passages)) == [
        f"Fact {number}." for number in range(6)
    ]
    assert len(set(receiver.ids)) == len(receiver.ids) == 12


@pytest.mark.skipif(not NIGHTLY, reason="two servers of its own: make nightly")
async def test_a_killed_hosts_turn_streams_to_its_end_from_the_other(
    folder: Path, database: OneDatabase
) -> None:
    with ExitStack() as stack:
        hosts = start(stack, folder, database)
        hosts.model.halts = True
        async with hosts.clients() as (first, second):
            agent = (await first.agents.create()).id
            async with first.messages.stream(agent, LONG) as here:
                await up_to_a_delta(here)
                async with second.turns.events(agent, 1) as there:
                    await up_to_a_delta(there)
                    hosts.one.kill()
                    hosts.model.let_go(2)
                    rest = [event async for event in there]
    assert texts(rest, MessageSaid) == [f"echo: {LONG}"]


def turns(hosts: Hosts, agent: Any) -> list[str]:
    query = f"SELECT state FROM turns WHERE agent_id = '{agent}' ORDER BY turn"
    return [state for (state,) in rows(hosts.database, query)]
