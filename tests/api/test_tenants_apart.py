"""What is one tenant's is not there for another, on every route that there is."""

import hashlib
from collections.abc import Iterable
from itertools import combinations
from typing import Any
from uuid import UUID

import httpx2
import psycopg

from memserver.llm.scripted import ScriptedModel, say
from tests.api.walk import Operation, operations
from tests.support import OneDatabase, Server, serving

Ids = dict[str, str]
NUMBERS_AND_NAMES = {"turn": "1", "section": "human"}
"""Parameters that name a thing only within another one."""


def model() -> ScriptedModel:
    return ScriptedModel(lambda _prompt, _tools: say("hello"))


async def furnish(
    server: Server, tenant: str, *, run_jobs: bool = True
) -> tuple[dict[str, str], Ids]:
    """A tenant that has one of everything: its admin's header, and what its things are called."""
    admin = await server.create_tenant(tenant)

    async def send(method: str, path: str, body: object) -> httpx2.Response:
        answer = await server.http.request(method, f"/v1/{path}", json=body, headers=admin)
        assert answer.status_code in (200, 201, 204), answer.text
        return answer

    async def post(path: str, body: object) -> dict[str, Any]:
        made: dict[str, Any] = (await send("POST", path, body)).json()
        return made

    agent = (await post("agents", {"name": f"of {tenant}"}))["id"]
    collection = (await post("collections", {"name": f"of {tenant}"}))["id"]
    await send("PUT", f"agents/{agent}/collections/{collection}", None)
    await send("PATCH", f"agents/{agent}/working-context/human", {"text": f"of {tenant}"})
    passages = {"passages": [{"text": f"a passage of {tenant}"}]}
    own = await post(f"agents/{agent}/archival", passages)
    shared = await post(f"collections/{collection}/passages", passages)
    await post(f"agents/{agent}/messages", {"text": f"a message of {tenant}"})
    document = await server.http.post(
        f"/v1/collections/{collection}/documents",
        content=f"a document of {tenant}".encode(),
        headers={**admin, "Content-Type": "text/plain"},
        params={"name": "a.txt"},
    )
    section = (await post("sections", {"name": f"of_{tenant}"}))["id"]
    await send("PATCH", f"sections/{section}", {"text": f"of {tenant}"})
    if run_jobs:
        await server.run_jobs()
    # Every parameter of a path that names somebody's thing, wherever it occurs.
    ids = {
        "document_id": document.json()["id"],
        "section_id": section,
        "agent_id": agent,
        "collection_id": collection,
        "passage_id": shared["items"][0]["id"],
        "key_id": (await post("keys", {"name": "spare"}))["id"],
        "tenant": tenant,
    }
    return admin, {**ids, "own_passage_id": own["items"][0]["id"]}


def names_for(operation: Operation, ids: Ids) -> Ids:
    if operation.path.startswith("/v1/agents/"):
        ids = {**ids, "passage_id": ids["own_passage_id"]}
    return NUMBERS_AND_NAMES | ids


def pick(ids: Ids, names: Iterable[str]) -> Ids:
    return {name: ids[name] for name in names}


def content(database: OneDatabase, tenant: str) -> dict[str, str]:
    """A digest of everything that a tenant has, by table."""
    with psycopg.connect(database.superuser) as connection:
        tables = connection.execute(
            """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
               WHERE c.relkind = 'r' AND a.attname = 'tenant'"""
        ).fetchall()
        found = {}
        for (table,) in tables:
            rows = connection.execute(
                f"SELECT t::text FROM {table} t WHERE tenant = %s ORDER BY 1".encode(), [tenant]
            ).fetchall()
            found[table] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return found


async def test_what_is_anothers_is_not_found_on_any_route(database: OneDatabase) -> None:
    async with serving(database, model()) as server:
        await server.operate()
        mine, my_ids = await furnish(server, "mine")
        yours, your_ids = await furnish(server, "yours")
        document = (await server.http.get("/openapi.json")).json()
        walked = [each for each in operations(document) if each.needs_key]
        before = content(database, "yours")

        for operation in walked:
            named = [name for name in operation.ids if name not in NUMBERS_AND_NAMES]
            unknown = set(named) - my_ids.keys()
            assert not unknown, f"{operation.name}: furnish() has to make what {unknown} names"
            wanted = names_for(operation, my_ids)
            theirs = names_for(operation, your_ids)
            some = [each for size in range(len(named)) for each in combinations(named, size + 1)]
            requests = {each: operation.request(wanted | pick(theirs, each)) for each in some}
            for name in set(operation.queries) & my_ids.keys():
                requests[name,] = operation.request(wanted)
                requests[name,]["params"][name] = theirs[name]
            for others, request in requests.items():
                answer = await server.http.request(**request, headers=mine)
                case = f"{operation.name} with another's {others}: {answer.text}"
                assert answer.status_code == 404, case
                assert answer.json()["error"]["code"] == "not_found", case
        assert content(database, "yours") == before

        # The same requests find their things where they are the caller's own.
        for number, operation in enumerate(walked):
            if operation.method == "delete":  # what another one deleted may have gone with it
                yours, your_ids = await furnish(server, f"yours-{number}")
            ids = names_for(operation, your_ids)
            answer = await server.http.request(**operation.request(ids), headers=yours)
            assert answer.status_code < 500, f"{operation.name}: {answer.text}"
            assert answer.status_code != 404, f"{operation.name}: {answer.text}"


async def test_no_list_and_no_search_shows_what_is_anothers(database: OneDatabase) -> None:
    async with serving(database, model()) as server:
        await server.operate()
        mine, my_ids = await furnish(server, "mine")
        _, your_ids = await furnish(server, "yours")
        document = (await server.http.get("/openapi.json")).json()
        shown = ""
        for operation in operations(document):
            if operation.method == "get" and operation.needs_key:
                ids = names_for(operation, my_ids)
                answer = await server.http.request(**operation.request(ids), headers=mine)
                assert answer.status_code == 200, f"{operation.name}: {answer.text}"
                shown += answer.text
    for name in my_ids.keys() - {"own_passage_id"}:
        assert my_ids[name] in shown, name
    for name, theirs in your_ids.items():
        assert theirs not in shown, name
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
