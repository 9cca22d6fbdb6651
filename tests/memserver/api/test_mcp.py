"""The memories at /mcp, asked by the official SDK over real HTTP: keys, tenants, scopes, limits, web pages."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from memserver.client import Client as Memserver
from memserver.testing.scripted import ScriptedModel, say
from tests.memserver.api.mcp_calls import call_tool
from tests.support.client import Served, served
from tests.support.server import OneDatabase

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}
AS_JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def speaking(server: Served, key: str | None, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, **options) as client:
            yield client


@contextmanager
def with_keys(database: OneDatabase, **settings: Any) -> Iterator[tuple[Served, dict[str, str]]]:
    """A server with two tenants, and keys by the names operator, ada, reader and eve."""
    model = ScriptedModel([say("Hello Ada.")])
    with served(database, model, key_cache_seconds=0, **settings) as server:
        with Memserver(server.url) as anybody:
            keys = {"operator": anybody.keys.create("operator", scopes=["admin"]).key}
        with Memserver(server.url, api_key=keys["operator"]) as operator:
            for tenant in ("acme", "evil"):
                operator.tenants.create(tenant)
            for name, tenant, scopes in (
                ("ada", "acme", ["read", "write"]),
                ("reader", "acme", ["read"]),
                ("eve", "evil", ["admin"]),
            ):
                keys[name] = operator.keys.create(name, scopes=scopes, tenant=tenant).key
        yield server, keys


def names(agents: Any) -> Sequence[str]:
    return [each["name"] for each in agents.structured_content["result"]]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_key_lists_searches_and_writes_its_tenants_memories_and_no_others(
    database: OneDatabase, mode: str
) -> None:
    with with_keys(database) as (server, keys):
        with Memserver(server.url, api_key=keys["ada"]) as ada:
            agent = await asyncio.to_thread(ada.agents.create, "sam")
            await asyncio.to_thread(ada.messages.send, agent.id, "I am Ada and I like ferns.")
        async with speaking(server, keys["ada"], mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            mine = await client.call_tool("list_agents", {})
            _, recalled = await call_tool(
                client, "recall_memory_search", agent="sam", query="ferns"
            )
            await call_tool(client, "archival_memory_insert", agent="sam", content="Ferns are old.")
            _, found = await call_tool(client, "archival_memory_search", agent="sam", query="ferns")
            _, noted = await call_tool(
                client, "working_context_append", agent="sam", section="human", content="Ada"
            )
        async with speaking(server, keys["eve"], mode=mode) as client:
            theirs = await client.call_tool("list_agents", {})
            foreign = [
                await call_tool(client, "working_context_read", agent=name)
                for name in ("sam", str(agent.id))
            ]
            written = await call_tool(
                client, "archival_memory_insert", agent=str(agent.id), content="Ha!"
            )
        with Memserver(server.url, api_key=keys["ada"]) as ada:
            passages = list(await asyncio.to_thread(lambda: list(ada.archival.all(agent.id))))
    assert len(tools) == 8
    assert not any("context" in tool.input_schema["properties"] for tool in tools.values())
    assert (names(mine), names(theirs)) == (["sam"], [])
    assert "user: I am Ada and I like ferns." in recalled
    assert "Ferns are old." in found
    assert noted == "Ada"
    assert all(failed and "no agent" in text for failed, text in [*foreign, written])
    assert [each.text for each in passages] == ["Ferns are old."]


async def test_a_key_that_may_only_read_changes_nothing(database: OneDatabase) -> None:
    with with_keys(database) as (server, keys):
        ada = Memserver(server.url, api_key=keys["ada"])
        agent = await asyncio.to_thread(ada.agents.create, "sam")
        human = {"agent": "sam", "section": "human"}
        changes = {"old_content": "x", "new_content": "y"}
        async with speaking(server, keys["reader"]) as client:
            read = await call_tool(client, "working_context_read", agent="sam")
            refused = [
                await call_tool(client, "working_context_append", **human, content="x"),
                await call_tool(client, "working_context_replace", **human, **changes),
                await call_tool(client, "archival_memory_insert", agent="sam", content="x"),
            ]
        memory = await asyncio.to_thread(ada.working_context.get, agent.id)
        ada.close()
    assert not read[0]
    assert refused == [(True, "The API key has not the scope write.")] * 3
    assert memory["human"].text == ""


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("key", [None, "msk_wrong"])
async def test_without_a_valid_key_the_sdk_is_refused(
    database: OneDatabase, key: str | None, mode: str
) -> None:
    with with_keys(database) as (server, _):
        with pytest.raises(Exception) as refused:  # noqa: PT011 - see below
            async with speaking(server, key, mode=mode):
                pass
        headers = ACCEPT | ({"Authorization": f"Bearer {key}"} if key else {})
        answer = httpx2.post(f"{server.url}/mcp", json=HELLO, headers=headers)
    assert innermost(refused.value).__class__ is MCPError
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith('Bearer realm="memserver"')
    assert answer.json()["error"]["code"] == ("invalid_api_key" if key else "missing_api_key")


def innermost(error: BaseException) -> BaseException:
    """The one error of a group, which the SDK's tasks raise."""
    while isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    return error


def test_a_revoked_key_is_refused_and_the_rate_limit_counts(database: OneDatabase) -> None:
    with with_keys(database, rate_limit=1, rate_limit_burst=8) as (server, keys):

        def post(name: str) -> httpx2.Response:
            headers = {**ACCEPT, "Authorization": f"Bearer {keys[name]}"}
            return httpx2.post(f"{server.url}/mcp", json=HELLO, headers=headers)

        statuses = [post("ada").status_code for _ in range(9)]
        limited = post("ada")
        with Memserver(server.url, api_key=keys["operator"]) as operator:
            [eve] = operator.keys.all(tenant="evil")
            operator.keys.revoke(eve.id, tenant="evil")
        revoked = post("eve")
    assert statuses == [200] * 8 + [429]
    assert limited.json()["error"]["code"] == "rate_limited"
    assert int(limited.headers["retry-after"]) > 0
    assert revoked.status_code == 401


@pytest.mark.parametrize(
    ("origin", "trusted", "status"),
    [
        ("https://evil.example", [], 403),
        ("null", [], 403),
        ("https://chat.example", ["https://chat.example"], 200),
        ("https://chat.example.evil.example", ["https://chat.example"], 403),
        ("https://chat.example", ["*"], 200),
        ("http://localhost:6274", [], 403),
        ("http://localhost:6274", ["http://localhost:6274"], 200),
        (None, [], 200),
    ],
)
def test_a_web_page_speaks_mcp_only_if_it_is_trusted_also_with_a_key(
    database: OneDatabase, origin: str | None, trusted: list[str], status: int
) -> None:
    with with_keys(database, cors_origins=trusted) as (server, keys):
        headers = {**ACCEPT, "Authorization": f"Bearer {keys['ada']}"}
        if origin is not None:
            headers["Origin"] = origin
        answer = httpx2.post(f"{server.url}/mcp", json=HELLO, headers=headers)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example"])
def test_without_keys_a_name_that_is_made_to_mean_this_machine_is_refused(
    database: OneDatabase, host: str
) -> None:
    with served(database, ScriptedModel()) as server:
        url = f"{server.url}/mcp"
        rebound = httpx2.post(url, json=HELLO, headers={**ACCEPT, "Host": host})
        here = httpx2.post(url, json=HELLO, headers=ACCEPT)
    assert (rebound.status_code, here.status_code) == (403, 200)


def test_what_is_no_mcp_request_is_refused_and_the_next_one_is_answered(
    database: OneDatabase,
) -> None:
    with served(database, ScriptedModel(), request_max_bytes=10_000) as server:
        url = f"{server.url}/mcp"
        statuses = [
            httpx2.get(url, headers=ACCEPT).status_code,
            httpx2.delete(url).status_code,
            httpx2.post(url, content=b"{", headers=ACCEPT | AS_JSON).status_code,
            httpx2.post(url, json={"jsonrpc": "2.0"}, headers=ACCEPT).status_code,
            httpx2.post(url, json=HELLO | {"more": "x" * 20_000}, headers=ACCEPT).status_code,
            httpx2.post(url, json=HELLO, headers=ACCEPT).status_code,
        ]
    assert statuses == [405, 405, 400, 400, 413, 200]


async def test_many_clients_ask_at_once_before_the_first_answer(database: OneDatabase) -> None:
    with served(database, ScriptedModel()) as server:
        async with httpx2.AsyncClient(timeout=60) as http:
            posts = [http.post(f"{server.url}/mcp", json=HELLO, headers=ACCEPT) for _ in range(8)]
            answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers] == [200] * 8
    assert {answer.json()["result"]["serverInfo"]["name"] for answer in answers} == {"memserver"}
