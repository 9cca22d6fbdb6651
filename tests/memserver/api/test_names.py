"""An agent's name, and a collection's, stands wherever its id does."""

from uuid import UUID

import pytest

from memserver.client import AsyncClient
from memserver.errors import NotFound
from memserver.testing.scripted import ScriptedModel, say
from tests.memserver.api.furnished import furnish, model, names_for, request_of
from tests.memserver.api.walk import operations
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, Server, serving

NAMED = ("agent", "collection")


async def test_every_route_takes_a_name_instead_of_an_id(
    database: OneDatabase, mcp_url: str
) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        document = (await server.http.get("/openapi.json")).json()
        walked = [each for each in operations(document) if set(each.ids) & set(NAMED)]
        for number, operation in enumerate(walked):
            if number == 0 or operation.method == "delete":  # what another one deleted may be gone
                admin, ids = await furnish(server, f"t-{number}", mcp_url, run_jobs=number == 0)
            by_id = names_for(operation, ids)
            named = by_id | await names_of(server, admin, by_id)
            answer = await server.http.request(**request_of(operation, named), headers=admin)
            # 409: the document's example is there already, as it is by id.
            assert answer.status_code in (200, 201, 202, 204, 409), (operation.name, answer.text)
    assert len(walked) > 40


async def names_of(server: Server, admin: dict[str, str], ids: dict[str, str]) -> dict[str, str]:
    found = {}
    for kind in NAMED:
        answer = await server.http.get(f"/v1/{kind}s/{ids[kind]}", headers=admin)
        found[kind] = answer.json()["name"]
    return found


async def test_a_name_of_another_tenant_is_not_found_on_any_route(
    database: OneDatabase, mcp_url: str
) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        mine, my_ids = await furnish(server, "mine", mcp_url)
        yours, your_ids = await furnish(server, "yours", mcp_url)
        theirs = await names_of(server, yours, your_ids)
        document = (await server.http.get("/openapi.json")).json()
        for operation in operations(document):
            for kind in set(operation.ids) & set(NAMED):
                named = names_for(operation, my_ids) | {kind: theirs[kind]}
                answer = await server.http.request(**request_of(operation, named), headers=mine)
                error = answer.json()["error"]
                case = f"{operation.name} with another's {kind}: {answer.text}"
                assert (answer.status_code, error["code"]) == (404, "not_found"), case
                assert error["message"] == f"There is no {kind} {theirs[kind]!r}.", case


async def test_an_unknown_name_is_the_error_of_an_unknown_id(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        name = await server.http.get("/v1/agents/Ada%20L./context")
        id_ = await server.http.get(f"/v1/agents/{UUID(int=1)}/context")
        filtered = await server.http.get("/v1/calls/waiting", params={"agent": "nobody"})
        nul = await server.http.get("/v1/agents/a%00b")
        long = await server.http.get(f"/v1/agents/{'x' * 201}")
    assert name.json()["error"] == {
        "code": "not_found",
        "message": "There is no agent 'Ada L.'.",
        "hint": "GET /v1/agents lists yours.",
    }
    assert id_.json()["error"] == {
        **name.json()["error"],
        "message": f"There is no agent {UUID(int=1)}.",
    }
    assert filtered.json()["error"]["message"] == "There is no agent 'nobody'."
    assert nul.status_code == 404
    assert (long.status_code, long.json()["error"]["code"]) == (422, "invalid_input")


async def test_what_has_the_form_of_an_id_is_an_id(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("the first")])) as server:
        first = await server.create_agent(name="first")
        second = await server.create_agent()  # named when that was allowed
        server.rows("UPDATE agents SET name = %s WHERE id = %s RETURNING id", first, second)
        got = await server.get(first)
        as_model = await server.http.get(f"/v1/models/{first}")
        turn = await server.http.post(
            "/v1/chat/completions",
            json={"model": first, "messages": [{"role": "user", "content": "who?"}]},
        )
    assert second != first
    assert (got["id"], got["name"]) == (first, "first")
    assert as_model.json()["id"] == "first"
    assert turn.json()["memserver"]["agent_id"] == first


async def test_the_client_takes_names(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("hello"), say("again")])) as server:
        client = AsyncClient("http://localhost", http=server.http)
        agent = await client.agents.create("Ada & Bob?")
        await client.collections.create("library")
        answer = await client.messages.send("Ada & Bob?", "hi")
        await client.archival.attach("Ada & Bob?", "library")
        read = await client.archival.collections("Ada & Bob?")
        waiting = await client.calls.list("Ada & Bob?")
        with pytest.raises(NotFound, match="There is no agent 'Ada'"):
            await client.messages.send("Ada", "hi")
    assert answer.text == "hello"
    assert [each.name for each in read.items][1:] == ["library"]
    assert waiting.items == []
    assert agent.name == "Ada & Bob?"


async def test_an_id_costs_no_statement_and_a_name_one_transaction(database: OneDatabase) -> None:
    """As the pool counts: a message by id takes three connections, by name one more."""
    async with serving(database, ScriptedModel([say("a")] * 4)) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "warm up")
        by_id = await connections(server, agent)
        by_name = await connections(server, "sam")
    assert by_name == by_id + 1


async def connections(server: Server, agent: str) -> int:
    pool = server.services.database.pool
    pool.pop_stats()
    await server.say(agent, "hi")
    return pool.get_stats()["requests_num"]
