"""Many agents at once before one endpoint over HTTP: bounded, fair, and whole when it fails."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx2
import pytest

from memserver.agent import conversation
from memserver.api.middleware import access
from memserver.storage import inbox
from memserver.testing.scripted import Held, ScriptedModel, say
from memserver.wiring.providers import Models
from tests.support.endpoint_stub import EndpointStub, endpoint_stub
from tests.support.server import OneDatabase, Server, serving

UNUSED = ScriptedModel()


def at(stub: EndpointStub, **settings: Any) -> dict[str, Any]:
    return {"llm_base_url": stub.url, "llm_mode": "tools", **settings}


def models_of(server: Server) -> Models:
    models = server.services.deps.models
    assert isinstance(models, Models)
    return models


async def until(true: Callable[[], bool]) -> None:
    """Wait for what other tasks bring about, letting them run."""
    while not true():
        await asyncio.to_thread(lambda: None)


async def test_three_hundred_agents_are_each_answered_once_and_never_more_than_the_bound_at_once(
    database: OneDatabase,
) -> None:
    async with (
        endpoint_stub() as stub,
        serving(database, UNUSED, **at(stub, llm_max_in_flight=8)) as server,
    ):
        agents = [await server.create_agent() for _ in range(300)]
        stub.may_answer.clear()
        posts = [
            asyncio.create_task(server.say(agent, f"m{number}"))
            for number, agent in enumerate(agents)
        ]
        slots = models_of(server).shared.slots
        await until(lambda: slots.waiting == 292)
        assert stub.in_flight == 8
        stub.may_answer.set()
        answers = await asyncio.gather(*posts)
        assert [answer["text"] for answer in answers] == [f"echo: m{n}" for n in range(300)]
        assert sorted(stub.arrived) == sorted(f"m{number}" for number in range(300))
        assert stub.most_in_flight == 8
        assert (slots.free, slots.waiting) == (8, 0)
        said = server.rows("SELECT agent_id, count(*) FROM messages GROUP BY 1")
        assert {count for _, count in said} == {2}


async def test_a_tenants_one_agent_does_not_wait_for_anothers_two_hundred(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        endpoint_stub() as stub,
        serving(database, UNUSED, **at(stub, llm_max_in_flight=8)) as server,
    ):
        agents = [await server.create_agent() for _ in range(200)]
        monkeypatch.setattr(access, "ANYBODY", replace(access.ANYBODY, tenant="small"))
        small = await server.create_agent()
        monkeypatch.undo()
        stub.may_answer.clear()
        posts = [asyncio.create_task(server.say(agent, "big")) for agent in agents]
        slots = models_of(server).shared.slots
        await until(lambda: slots.waiting == 192)
        monkeypatch.setattr(access, "ANYBODY", replace(access.ANYBODY, tenant="small"))
        post = asyncio.create_task(server.say(small, "small"))
        await until(lambda: slots.waiting == 193)
        monkeypatch.undo()
        stub.may_answer.set()
        assert (await post)["text"] == "echo: small"
        await asyncio.gather(*posts)
        # Eight were being answered; of the next two slots, one is the small tenant's.
        assert stub.arrived.index("small") < 16
        assert len(stub.arrived) == 201


async def test_connections_are_used_again_and_are_no_more_than_the_bound(
    database: OneDatabase,
) -> None:
    async with (
        endpoint_stub() as stub,
        serving(database, UNUSED, **at(stub, llm_max_in_flight=16)) as server,
    ):
        agents = [await server.create_agent() for _ in range(64)]
        for number in range(3):
            stub.may_answer.clear()
            posts = [asyncio.create_task(server.say(agent, f"m{number}")) for agent in agents]
            await stub.until_in_flight(16)
            stub.may_answer.set()
            await asyncio.gather(*posts)
        assert len(stub.arrived) == 192
        assert stub.most_in_flight == 16
        assert stub.most_open <= 16
        assert stub.connections < 64


async def test_more_connections_than_the_pools_usual_bound_are_open_if_so_many_are_in_flight(
    database: OneDatabase,
) -> None:
    patient = {
        "lease_seconds": 60
    }  # however busy the machine is, no turn is lost and taken up again
    async with endpoint_stub() as stub, serving(database, UNUSED, **at(stub, **patient)) as server:
        agents = [await server.create_agent() for _ in range(150)]
        stub.may_answer.clear()
        posts = [asyncio.create_task(server.say(agent, "hello")) for agent in agents]
        await stub.until_in_flight(150)
        ready = await server.http.get("/v1/ready")  # it doesn't wait for them
        assert ready.status_code == 200
        stub.may_answer.set()
        await asyncio.gather(*posts)


async def test_a_kept_connection_that_the_endpoint_drops_costs_no_turn(
    database: OneDatabase,
) -> None:
    async with endpoint_stub() as stub, serving(database, UNUSED, **at(stub)) as server:
        agent = await server.create_agent()
        await server.say(agent, "one")
        stub.drops = 1
        assert (await server.say(agent, "two"))["text"] == "echo: two"
        assert stub.arrived == ["one", "two", "two"]
        assert stub.connections == 2


async def test_time_in_the_queue_counts_to_the_turn_and_loses_no_slot(
    database: OneDatabase,
) -> None:
    settings = {"llm_max_in_flight": 1, "turn_timeout": 1}
    async with endpoint_stub() as stub, serving(database, UNUSED, **at(stub, **settings)) as server:
        agent = await server.create_agent()
        slots = models_of(server).shared.slots
        async with slots.one("somebody else"):
            answer = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "one"})
            assert answer.json()["error"]["code"] == "turn_timeout"
        assert (slots.free, slots.waiting) == (1, 0)
        assert stub.arrived == []
        assert (await server.say(agent, "two"))["text"] == "echo: two"


async def test_a_turn_that_waits_for_a_slot_keeps_its_lease(database: OneDatabase) -> None:
    settings = {"llm_max_in_flight": 1, "lease_seconds": 0.3}
    async with endpoint_stub() as stub, serving(database, UNUSED, **at(stub, **settings)) as server:
        agent = await server.create_agent()
        slots = models_of(server).shared.slots
        async with slots.one("somebody else"):
            post = asyncio.create_task(server.say(agent, "hello"))
            await until(lambda: slots.waiting == 1)
            state = "SELECT lease_owner, lease_epoch, lease_expires_at FROM agent_state"
            [(owner, epoch, first)] = server.rows(state)
            renewed = "SELECT 1 FROM agent_state WHERE lease_expires_at > %s + interval '1 second'"
            while not server.rows(renewed, first):  # several leases' length later
                await asyncio.to_thread(lambda: None)
            assert server.rows(state)[0][:2] == (owner, epoch)
        assert (await post)["text"] == "echo: hello"
        assert server.rows("SELECT attempts FROM turns") == [(1,)]


async def test_callers_of_turns_that_run_here_do_not_look_into_the_database(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    asked = asyncio.Event()
    get_turn = inbox.get_turn

    async def counted(tx: Any, agent_id: Any, turn: int) -> inbox.TurnRow:
        looks.append(turn)
        return await get_turn(tx, agent_id, turn)

    monkeypatch.setattr(inbox, "get_turn", counted)
    monkeypatch.setattr(conversation, "POLL_SECONDS", 0.005)
    release = asyncio.Event()
    held = Held(say("hi"), release)
    async with serving(database, ScriptedModel([held])) as server:
        agent = await server.create_agent()
        worker = server.services.worker
        serves, times = worker.serves, []

        def asking(agent_id: Any) -> bool:
            times.append(serves(agent_id))
            if len(times) > 20:
                asked.set()
            return times[-1]

        post = asyncio.create_task(server.say(agent, "hello"))
        await held.reached.wait()
        monkeypatch.setattr(worker, "serves", asking)
        before = len(looks)
        await asked.wait()
        assert len(looks) == before
        assert all(times)
        release.set()
        assert (await post)["text"] == "hi"


async def test_callers_look_for_themselves_once_another_worker_has_the_agent(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "POLL_SECONDS", 0.005)
    held = Held(say("too late"), asyncio.Event())
    async with serving(database, ScriptedModel([held]), lease_seconds=0.3) as server:
        agent = await server.create_agent()
        post = asyncio.create_task(server.say(agent, "hello"))
        await held.reached.wait()
        server.rows("UPDATE agent_state SET lease_owner = 'other', lease_epoch = 9 RETURNING 1")
        await until(lambda: not server.services.worker.serves(UUID(agent)))
        # As by the other worker, whose notification is lost.
        server.rows("UPDATE turns SET state = 'done', stop_reason = 'no_heartbeat' RETURNING 1")
        assert (await post)["stop_reason"] == "no_heartbeat"


async def failed(server: Server, agent: str) -> dict[str, Any]:
    answer: httpx2.Response = await server.http.post(
        f"/v1/agents/{agent}/messages", json={"text": "hello"}
    )
    assert answer.status_code == 503
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == "model_unavailable"
    return error


async def test_an_endpoint_that_is_down_is_left_alone_which_ready_reports_and_ends_when_it_is_back(
    database: OneDatabase,
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    settings = {
        "llm_base_url": f"http://127.0.0.1:{port}/v1",
        "llm_model": "stub",
        "llm_mode": "tools",
        "llm_context_window": 100_000,
    }
    async with serving(database, UNUSED, **settings) as server:
        agents = [await server.create_agent() for _ in range(5)]
        first = await asyncio.gather(*(failed(server, agent) for agent in agents))
        assert all("can't be reached" in error["message"] for error in first)
        error = await failed(server, agents[0])
        assert "not asked now. It has failed since 20" in error["message"]
        assert "can't be reached" in error["message"]
        assert "MEMSERVER_LLM_BASE_URL" in error["hint"]
        ready = await server.http.get("/v1/ready")
        assert ready.status_code == 503
        [model] = [item for item in ready.json()["components"] if item["name"] == "model"]
        assert "It has failed since 20" in model["detail"]
        async with endpoint_stub(port) as stub:
            assert (await server.http.get("/v1/ready")).status_code == 200
            answer = await server.say(agents[0], "again")
            assert answer["text"] == "echo: again"
            assert stub.arrived == ["again"]
            await models_of(server).aclose()
