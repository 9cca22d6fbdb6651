"""A tenant that has one of everything, and the requests that name its things."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import httpx2
import psycopg

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.memserver.api.walk import Json, Operation
from tests.support.server import OneDatabase, Server

Ids = dict[str, str]
NUMBERS_AND_NAMES = {"turn": "1", "section": "human", "position": "1000", "label": "p1"}
"""Parameters that name a thing only within another one."""
WAITING = {"/approval": "approved", "/result": "ran", "/turns/{turn}/cancel": "cancelled"}
"""Each of these wants a call that waits: an agent of its own."""
OPENAI = {"POST /v1/chat/completions", "POST /v1/responses"}
"""Here the body names an agent, as a model."""
APPEND = "working_context_append"


def model() -> ScriptedModel:
    """Says hello, as JSON where a client wants that, except where it is asked for a tool."""

    def step(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        asked = re.search(r"Call (\w+)!", last_user_text(prompt))
        if asked is None or prompt[-1].role != "user":
            sends = next((each for each in tools if each.name == "send_message"), None)
            if sends is None:  # a rule wants another tool first
                needed = tools[0].parameters.get("required", ())
                known = tools[0].parameters.get("properties", {})
                return Call(tools[0].name, {name: _value(known.get(name)) for name in needed})
            if sends.parameters["properties"]["message"]["type"] == "object":
                return Call("send_message", {"message": {}})
            return say("hello")
        append = {"section": "human", "content": "x"}
        return Call(asked[1], append if asked[1] == APPEND else {})

    return ScriptedModel(step)


def _value(schema: object) -> object:
    """What a parameter takes; a made-up tool may say nothing of one that it needs."""
    return schema["enum"][0] if isinstance(schema, dict) and schema.get("enum") else "x"


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
    # A document's failure: none fails, so that nothing is sent there.
    webhook = {"url": "https://example.org/of", "events": ["document.failed"]}
    remind = {"in_seconds": 3600, "text": f"of {tenant}"}
    # Every parameter of a path that names somebody's thing, wherever it occurs.
    ids = {
        "document_id": document.json()["id"],
        "section_id": section,
        "timer_id": (await post(f"agents/{agent}/timers", remind))["id"],
        "agent": agent,
        "collection": collection,
        "passage_id": shared["items"][0]["id"],
        "key_id": (await post("keys", {"name": "spare"}))["id"],
        "tenant": tenant,
        "name": tool,
        "server_id": mcp_server["id"],
        "webhook_id": (await post("webhooks", webhook))["id"],
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
    if operation.path.endswith("/try"):
        request["json"]["arguments"] = {"a": 1}
    if operation.name == "POST /v1/mcp-servers":
        request["json"]["url"] = names["mcp_url"]
    if operation.path.endswith(("/messages/delete", "/messages/expire")):
        request["json"]["positions"] = [1001 if operation.path.endswith("delete") else 1000]
    if operation.name == "POST /v1/webhooks":  # which hears of nothing: nobody is there
        request["json"]["events"] = ["document.failed"]
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
