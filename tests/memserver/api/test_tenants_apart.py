"""What is one tenant's is not there for another, on every route that there is."""

from itertools import combinations
from uuid import UUID

from memserver.testing.scripted import ScriptedModel
from tests.memserver.api.furnished import (
    NUMBERS_AND_NAMES,
    OPENAI,
    content,
    furnish,
    model,
    names_for,
    pick,
    request_of,
)
from tests.memserver.api.walk import operations
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, serving

FILTERS = {"name"}
"""Queries that lists filter by: what is another's is not found, and no error either."""
OPERATORS = {f"GET /v1/{path}" for path in ("operations", "endpoint", "reports", "reports/{name}")}
"""For the server's operator alone, whatever a tenant's key may."""
NOT_SHOWN = {"own_passage_id", "mcp_url"}


async def test_what_is_anothers_is_not_found_on_any_route(
    database: OneDatabase, mcp_url: str
) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        mine, my_ids = await furnish(server, "mine", mcp_url)
        yours, your_ids = await furnish(server, "yours", mcp_url)
        document = (await server.http.get("/openapi.json")).json()
        found = [each for each in operations(document) if each.needs_key]
        walked = [each for each in found if each.name not in OPERATORS]
        before = content(database, "yours")

        for operation in walked:
            named = [name for name in operation.ids if name not in NUMBERS_AND_NAMES]
            named += ["model"] if operation.name in OPENAI else []
            unknown = set(named) - my_ids.keys()
            assert not unknown, f"{operation.name}: furnish() has to make what {unknown} names"
            wanted = names_for(operation, my_ids)
            theirs = names_for(operation, your_ids)
            some = [each for size in range(len(named)) for each in combinations(named, size + 1)]
            requests = {each: request_of(operation, wanted | pick(theirs, each)) for each in some}
            for name in set(operation.queries) & my_ids.keys() - FILTERS:
                requests[name,] = request_of(operation, wanted)
                requests[name,]["params"][name] = theirs[name]
            for others, request in requests.items():
                answer = await server.http.request(**request, headers=mine)
                case = f"{operation.name} with another's {others}: {answer.text}"
                assert answer.status_code == 404, case
                assert answer.json()["error"]["code"] in {"not_found", "model_not_found"}, case
        assert content(database, "yours") == before

        # The same requests find their things where they are the caller's own.
        for number, operation in enumerate(walked):
            if operation.method == "delete":  # what another one deleted may have gone with it
                yours, your_ids = await furnish(server, f"yours-{number}", mcp_url)
            ids = names_for(operation, your_ids)
            answer = await server.http.request(**request_of(operation, ids), headers=yours)
            assert answer.status_code < 500, f"{operation.name}: {answer.text}"
            assert answer.status_code != 404, f"{operation.name}: {answer.text}"


async def test_no_list_and_no_search_shows_what_is_anothers(
    database: OneDatabase, mcp_url: str
) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        _, your_ids = await furnish(server, "yours", mcp_url)
        mine, my_ids = await furnish(server, "mine", mcp_url)  # its timer is still there
        document = (await server.http.get("/openapi.json")).json()
        shown = ""
        for operation in operations(document):
            if operation.method == "get" and operation.needs_key:
                ids = names_for(operation, my_ids)
                answer = await server.http.request(**request_of(operation, ids), headers=mine)
                expected = 403 if operation.name in OPERATORS else 200
                assert answer.status_code == expected, f"{operation.name}: {answer.text}"
                shown += answer.text
    for name in my_ids.keys() - NOT_SHOWN:
        assert my_ids[name] in shown, name
    for name in your_ids.keys() - NOT_SHOWN:
        assert your_ids[name] not in shown, name
    assert "of yours" not in shown


async def test_the_operator_gives_a_tenant_its_first_key_and_others_can_not(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        admin = await server.create_tenant("acme")
        await server.create_tenant("other")
        refused = await server.http.post("/v1/tenants", json={"tenant": "x"}, headers=admin)
        foreign = await server.http.post(
            "/v1/keys", json={"name": "x", "tenant": "other"}, headers=admin
        )
        nobodys = await server.http.post("/v1/keys", json={"name": "x", "tenant": "nobody"})
        again = await server.http.post("/v1/tenants", json={"tenant": "acme"})
        own = await server.http.get("/v1/tenants", headers=admin)
        first = (await server.http.get("/v1/tenants", params={"limit": 2})).json()
        rest = (await server.http.get("/v1/tenants", params={"after": first["next"]})).json()
        theirs = (await server.http.get("/v1/keys", params={"tenant": "acme"})).json()
        [key] = theirs["items"]
        url = f"/v1/keys/{key['id']}"
        hidden = await server.http.get(url)
        seen = await server.http.get(url, params={"tenant": "acme"})
        revoked = await server.http.delete(url, params={"tenant": "acme"})
        out = await server.http.get("/v1/agents", headers=admin)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert foreign.status_code == nobodys.status_code == hidden.status_code == 404
    assert again.status_code == 409
    assert [each["tenant"] for each in own.json()["items"]] == ["acme"]
    names = [each["tenant"] for page in (first, rest) for each in page["items"]]
    assert names == ["acme", "default", "other"]
    assert rest["next"] is None
    assert UUID(seen.json()["id"]) == UUID(key["id"])
    assert revoked.status_code == 204
    assert (out.status_code, out.json()["error"]["message"]) == (401, "The API key was revoked.")
