"""memserver below a reverse proxy: which of its headers count, and what the addresses in answers are."""

from typing import Any

import httpx2
import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, Server, serving

PROXY, STRANGER = "10.0.0.7", "203.0.113.5"
SAID = {
    "X-Forwarded-For": "198.51.100.1",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "memory.example",
    "X-Forwarded-Prefix": "/memory",
}


def from_address(server: Server, address: str, **headers: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(server.app, client=(address, 1), raise_app_exceptions=False)
    return httpx2.AsyncClient(
        transport=transport,
        base_url="http://inside:8283",
        headers={**server.http.headers, **headers},
    )


async def test_what_a_proxy_says_counts_from_a_trusted_one_alone(database: OneDatabase) -> None:
    async with serving(
        database, ScriptedModel(), trusted_proxies="10.0.0.0/8", console=False
    ) as server:
        await server.operate()
        for address, base in [
            (PROXY, "https://memory.example/memory"),
            (STRANGER, "http://inside:8283"),
        ]:
            async with from_address(server, address, **SAID) as http:
                page = await http.get("/", headers={"Accept": "text/html"})
                document = (await http.get("/openapi.json")).json()
            assert f"curl -s {base}/v1/" in page.text, page.text[400:1200]
            servers = [{"url": "/memory"}] if address == PROXY else []
            assert document.get("servers", []) == servers


async def test_of_several_values_the_nearest_proxys_counts_and_a_bad_one_is_refused(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(), trusted_proxies=PROXY, console=False) as server:
        several = {"X-Forwarded-Host": "evil.example, memory.example"}
        async with from_address(server, PROXY, **several) as http:
            page = await http.get("/", headers={"Accept": "text/html"})
            bad = await http.get("/", headers={"X-Forwarded-Host": "a b"})
    assert "http://memory.example" in page.text
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("taken_away", [True, False])
@pytest.mark.parametrize("said", [True, False])
async def test_below_a_path_every_check_sees_the_path_that_the_routes_see(
    database: OneDatabase, taken_away: bool, said: bool
) -> None:
    """So that no prefix makes an admin's route look like another one."""
    settings: dict[str, Any] = {"trusted_proxies": PROXY, "root_path": "" if said else "/memory"}
    async with serving(database, ScriptedModel(), **settings) as server:
        await server.operate()
        reader = await server.create_key(scopes=["read"])
        headers = {"X-Forwarded-Prefix": "/memory"} if said else {}
        below = "" if taken_away else "/memory"
        async with from_address(server, PROXY, **headers) as http:
            http.headers.pop("Authorization")
            assert (await http.get(f"{below}/v1/health")).status_code == 200
            assert (await http.get(f"{below}/")).status_code == 200
            assert (await http.get(below or "/")).status_code == 200
            assert (await http.get(f"{below}/v1/agents")).status_code == 401
            assert (await http.get(f"{below}/v1/agents/", headers=reader)).status_code == 200
            openai = (await http.get(f"{below}/v1/models/nothing", headers=reader)).json()
            assert openai["error"]["code"] == "model_not_found"
            for path in ("/v1/keys", "/memory/v1/keys", "/v1/keys/"):
                answer = await http.get(f"{below}{path}", headers=reader)
                assert answer.status_code in (403, 404), path
            document = (await http.get(f"{below}/openapi.json")).json()
    assert document["servers"] == [{"url": "/memory"}]


@pytest.mark.parametrize(
    "prefix", ["/v1", "/docs", "/v1/keys", "/v1/health", "//evil.example", "/a/../b"]
)
async def test_no_prefix_that_a_client_smuggles_past_the_proxy_opens_a_route(
    database: OneDatabase, prefix: str
) -> None:
    async with serving(database, ScriptedModel(), trusted_proxies=PROXY) as server:
        await server.operate()
        reader = await server.create_key(scopes=["read"])
        async with from_address(server, PROXY, **{"X-Forwarded-Prefix": prefix}) as http:
            http.headers.pop("Authorization")
            for path in ("/v1/keys", f"{prefix}/v1/keys", f"{prefix}{prefix}/v1/keys", "/keys"):
                for headers in ({}, reader):
                    answer = await http.get(path, headers=headers)
                    # Where the prefix is the whole path, that is the first page.
                    assert answer.status_code in (401, 403, 404) or "docs" in answer.json(), path


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Real-IP", "Forwarded"])
async def test_without_keys_a_request_that_came_through_a_proxy_from_elsewhere_is_refused(
    database: OneDatabase, name: str
) -> None:
    async with serving(database, ScriptedModel()) as server:
        http = server.http
        here = await http.get("/v1/agents", headers={"X-Forwarded-For": "127.0.0.1, ::1"})
        elsewhere = await http.get("/v1/agents", headers={name: "203.0.113.5, 127.0.0.1"})
    assert (here.status_code, elsewhere.status_code) == (200, 403)


async def test_a_slash_at_the_end_is_no_redirect_on_any_route_and_needs_no_other_scope(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        reader = await server.create_key(scopes=["read"])
        for path, item in server.app.openapi()["paths"].items():
            for method in item:
                asked = path.replace("{", "").replace("}", "")
                without = await server.http.request(method, asked, headers=reader)
                slash = await server.http.request(method, f"{asked}/", headers=reader)
                assert slash.status_code == without.status_code, (method, path)
                assert not slash.is_redirect
        mcp = {**reader, "Accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for path in ("/mcp", "/mcp/", "/mcp//"):
            assert (await server.http.post(path, json=ping, headers=mcp)).status_code == 200, path
