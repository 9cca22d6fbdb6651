"""What is one tenant's is not there for another, on every route that there is."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any
from uuid import UUID

import httpx2
import psycopg

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.memserver.api.walk import Json, Operation, operations
from tests.memserver.tools.test_mcp_tools import HERE
from tests.support.server import OneDatabase, Server, serving

Ids = dict[str, str]
NUMBERS_AND_NAMES = {"turn": "1", "section": "human"}
"""Parameters that name a thing only within another one."""
WAITING = {"/approval": "approved", "/result": "ran", "/turns/{turn}/cancel": "cancelled"}
"""Each of these wants a call that waits: an agent of its own."""
OPENAI = {"POST /v1/chat/completions", "POST /v1/responses"}
"""Here the body names an agent, as a model."""
FILTERS = {"name"}
"""Queries that lists filter by: what is another's is not found, and no error either."""
NOT_SHOWN = {"own_passage_id", "mcp_url"}
APPEND = "working_context_append"


def model() -> ScriptedModel:
    """Says hello, except where it is asked for a tool."""

    def step(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
        asked = re.search(r"Call (\w+)!", last_user_text(prompt))
        if asked is None or prompt[-1].role != "user":
            return say("hello")
        append = {"section": "human", "content": "x"}
        return Call(asked[1], append if asked[1] == APPEND else {})

    return ScriptedModel(step)


async def furnish(
    server: Server, tenant: str, mcp_url: str, *, run_jobs: bool = True
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

    async def waiting(kind: str, tool: str, *, approval: bool = False) -> Ids:
        agent = (await post("agents", {"name": f"{kind} of {tenant}"}))["id"]
        await send("PUT", f"agents/{agent}/tools/{tool}", {"approval": approval})
        paused = await post(f"agents/{agent}/messages", {"text": f"Call {tool}!"})
        call = paused["messages"][-1]["tool_call"]
        return {f"{kind}_agent_id": agent, f"{kind}_call_id": call["id"]}

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
    tool = "tool_of_" + tenant.replace("-", "_")
    await post("tools", {"kind": "client", "name": tool, "description": f"of {tenant}"})
    await send("PUT", f"agents/{agent}/tools/{tool}", {})
    mcp_server = await post("mcp-servers", {"name": "wiki", "url": mcp_url})
    calls = {
        **await waiting("approved", APPEND, approval=True),
        **await waiting("ran", tool),
        **await waiting("cancelled", tool),
    }
    if run_jobs:
        await server.run_jobs()
    # Every parameter of a path that names somebody's thing, wherever it occurs.
    ids = {
        "document_id": document.json()["id"],
        "section_id": section,
        "agent": agent,
        "collection": collection,
        "passage_id": shared["items"][0]["id"],
        "key_id": (await post("keys", {"name": "spare"}))["id"],
        "tenant": tenant,
        "name": tool,
        "server_id": mcp_server["id"],
        "call_id": calls["approved_call_id"],
        "model": agent,
        "response_id": f"resp_{UUID(agent).hex}_1",
        **calls,
    }
    return admin, {**ids, "own_passage_id": own["items"][0]["id"], "mcp_url": mcp_url}


def names_for(operation: Operation, ids: Ids) -> Ids:
    if operation.path.startswith("/v1/agents/"):
        ids = {**ids, "passage_id": ids["own_passage_id"]}
    for end, kind in WAITING.items():
        if operation.path.endswith(end):
            ids = {**ids, "agent": ids[f"{kind}_agent_id"], "call_id": ids[f"{kind}_call_id"]}
    return NUMBERS_AND_NAMES | ids


def request_of(operation: Operation, names: Ids) -> Json:
    """The request, with what the document can't know."""
    request = operation.request(names)
    if operation.name == "POST /v1/mcp-servers":
        request["json"]["url"] = names["mcp_url"]
    if operation.name in OPENAI:
        said = {name: value for name, value in request["json"].items() if name != "model"}
        request["json"] = {"model": names["model"], **said}
    return request


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


async def test_what_is_anothers_is_not_found_on_any_route(
    database: OneDatabase, mcp_url: str
) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        mine, my_ids = await furnish(server, "mine", mcp_url)
        yours, your_ids = await furnish(server, "yours", mcp_url)
        document = (await server.http.get("/openapi.json")).json()
        walked = [each for each in operations(document) if each.needs_key]
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
        mine, my_ids = await furnish(server, "mine", mcp_url)
        _, your_ids = await furnish(server, "yours", mcp_url)
        document = (await server.http.get("/openapi.json")).json()
        shown = ""
        for operation in operations(document):
            if operation.method == "get" and operation.needs_key:
                ids = names_for(operation, my_ids)
                answer = await server.http.request(**request_of(operation, ids), headers=mine)
                assert answer.status_code == 200, f"{operation.name}: {answer.text}"
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
