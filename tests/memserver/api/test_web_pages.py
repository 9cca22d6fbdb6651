"""A web page that is open on the server's machine: what it can send reaches nothing unless it is trusted."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from memserver.settings import Settings
from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, Server, serving

OWN = "http://127.0.0.1:8283"
TRUSTED = "https://trusted.example"
MCP = {"Accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def browser(server: Server, client: str = "127.0.0.1") -> httpx2.AsyncClient:
    """Connections to port 8283 of this machine."""
    transport = httpx2.ASGITransport(server.app, client=(client, 1), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=OWN)


HOSTS = {
    "localhost:8283": 200,
    "LOCALHOST:8283": 200,
    "127.0.0.1:8283": 200,
    "[::1]:8283": 200,
    "localhost": 403,
    "localhost:80": 403,
    "localhost:8284": 403,
    "localhost.:8283": 403,
    "app.localhost:8283": 403,
    "localhost.evil.example:8283": 403,
    "evil.example:8283": 403,
    "0.0.0.0:8283": 403,
    "127.0.0.2:8283": 403,
    "127.1:8283": 403,
    "2130706433:8283": 403,
    "0x7f000001:8283": 403,
    "[::]:8283": 403,
    "[::ffff:127.0.0.1]:8283": 403,
    "192.168.1.7:8283": 403,
    "203.0.113.5:8283": 403,
    "[": 400,
    "[::1": 400,
    "localhost:x": 400,
    "localhost:8283:8283": 400,
    "a@localhost:8283": 400,
    "localhost:8283/": 400,
    "": 400,
}
ORIGINS = {
    OWN: 200,
    "http://localhost:8283": 200,
    "http://[::1]:8283": 200,
    TRUSTED: 200,
    "https://localhost:8283": 403,
    "http://localhost": 403,
    "http://localhost:3000": 403,
    "http://localhost.:8283": 403,
    "http://app.localhost:8283": 403,
    "http://203.0.113.5": 403,
    "http://203.0.113.5:8283": 403,
    "http://0.0.0.0:8283": 403,
    "http://2130706433:8283": 403,
    "http://[fe80::1]:8283": 403,
    "https://evil.example": 403,
    f"{TRUSTED}.evil.example": 403,
    "http://trusted.example": 403,
    "chrome-extension://abcdefgh": 403,
    "null": 403,
    "http://[": 400,
    "http://": 400,
    f"{OWN} {OWN}": 400,
    f"{OWN}/": 400,
    "localhost:8283": 400,
    "": 400,
}
PLACES = [("GET", "/v1/agents"), ("POST", "/v1/agents"), ("POST", "/mcp"), ("GET", "/v1/nothing")]


async def ask(http: httpx2.AsyncClient, method: str, path: str, **headers: str) -> int:
    said = None if method == "GET" else HELLO if path == "/mcp" else {}
    answer = await http.request(method, path, headers={**MCP, **headers}, json=said)
    if answer.status_code in (400, 403):
        assert (
            answer.json()["error"]["code"]
            == {400: "bad_request", 403: "forbidden"}[answer.status_code]
        )
    found = {201: 200, 404: 200}
    return found.get(answer.status_code, answer.status_code)


async def test_without_keys_only_an_exact_loopback_address_with_the_own_port_is_a_host(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server, browser(server) as http:
        for host, status in HOSTS.items():
            for method, path in PLACES:
                assert await ask(http, method, path, Host=host) == status, (host, path)
            opened = await ask(http, "GET", "/v1/health", Host=host)
            assert opened == (400 if status == 400 else 200), host


async def test_without_keys_only_the_own_pages_and_those_of_the_settings_are_an_origin(
    database: OneDatabase,
) -> None:
    async with (
        serving(database, ScriptedModel(), cors_origins=[TRUSTED]) as server,
        browser(server) as http,
    ):
        for origin, status in ORIGINS.items():
            for method, path in PLACES:
                assert await ask(http, method, path, Origin=origin) == status, (origin, path)


@pytest.mark.parametrize(
    ("site", "origin", "statuses"),
    [
        ("same-origin", None, [200, 200, 200]),
        ("none", None, [200, 403, 403]),
        ("same-site", None, [403, 403, 403]),
        ("cross-site", None, [403, 403, 403]),
        ("cross-site", TRUSTED, [200, 200, 200]),
        ("something new", None, [403, 403, 403]),
    ],
)
async def test_what_the_browser_says_of_the_page_counts_where_it_sends_no_origin(
    database: OneDatabase, site: str, origin: str | None, statuses: list[int]
) -> None:
    headers = {"Sec-Fetch-Site": site} | ({} if origin is None else {"Origin": origin})
    async with (
        serving(database, ScriptedModel(), cors_origins=[TRUSTED]) as server,
        browser(server) as http,
    ):
        found = [await ask(http, method, path, **headers) for method, path in PLACES[:3]]
        pages = [await ask(http, "GET", path, **headers) for path in ("/", "/docs", "/v1/health")]
    assert found == statuses
    assert pages == [200] * 3  # a link may lead there


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://203.0.113.5"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    "sent_as", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
async def test_a_page_can_plant_no_agent_and_no_document_by_a_form(
    database: OneDatabase, headers: dict[str, str], sent_as: str | None
) -> None:
    sent = headers | ({} if sent_as is None else {"Content-Type": sent_as})
    async with serving(database, ScriptedModel()) as server, browser(server) as http:
        agent = await server.create_agent()
        own = (await server.http.get("/v1/collections")).json()["items"]
        paths = ["/v1/agents/import", f"/v1/agents/{agent}/documents"]
        paths += [f"/v1/collections/{each['id']}/documents" for each in own[:1]]
        for path in paths:
            answer = await http.post(path, content=b"a file", headers=sent)
            assert answer.status_code == 403, path
        agents = (await server.http.get("/v1/agents")).json()["items"]
        documents = (await server.http.get(f"/v1/agents/{agent}/documents")).json()["items"]
    assert (len(agents), documents) == (1, [])


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize(
    "sent_as",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json+json",
        "x",
        None,
    ],
)
async def test_nothing_that_a_form_can_send_is_read_as_json(
    database: OneDatabase, sent_as: str | None, keys: bool
) -> None:
    headers = {} if sent_as is None else {"Content-Type": sent_as}
    async with serving(database, ScriptedModel()) as server:
        if keys:
            await server.operate()
        for method, path in _json_routes(server):
            answer = await server.http.request(method, path, content=b"{}", headers=headers)
            code = answer.json()["error"]["code"]
            assert (answer.status_code, code) == (415, "unsupported_media_type"), path


def _json_routes(server: Server) -> list[tuple[str, str]]:
    """Every route that changes something, but those that take files; and one that isn't there."""
    found = [("POST", "/mcp"), ("POST", "/v1/nothing")]
    for path, item in server.app.openapi()["paths"].items():
        methods = {"post", "put", "patch", "delete"} & item.keys()
        takes = {kind for each in methods for kind in _kinds(item[each])}
        if takes <= {"application/json"}:
            found += [(each.upper(), path.replace("{", "").replace("}", "")) for each in methods]
    assert len(found) > 30
    return found


def _kinds(operation: dict[str, Any]) -> Sequence[str]:
    return list(operation.get("requestBody", {}).get("content", {}))


async def test_a_request_without_a_body_needs_no_content_type(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        bare = await server.http.post(f"/v1/agents/{agent}/turns/1/cancel")
        as_form = await server.http.post(
            f"/v1/agents/{agent}/turns/1/cancel",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        gone = await server.http.delete(f"/v1/agents/{agent}")
    assert (bare.status_code, as_form.status_code, gone.status_code) == (404, 415, 204)


@pytest.mark.parametrize("origin", ["http://203.0.113.5", "https://evil.example", "null"])
async def test_pages_of_all_origins_are_never_allowed_without_keys(
    database: OneDatabase, origin: str
) -> None:
    async with (
        serving(database, ScriptedModel(), cors_origins=["*"]) as server,
        browser(server) as http,
    ):
        for method, path in PLACES[:2]:
            assert await ask(http, method, path, Origin=origin) == 403
        key = await server.create_key(scopes=["admin"])
        with_key = await http.get("/v1/agents", headers={**key, "Origin": origin})
    assert (with_key.status_code, with_key.headers["Access-Control-Allow-Origin"]) == (200, "*")


@pytest.mark.parametrize("origin", ["null", "https://chat.example/", "chat.example", ""])
def test_an_origin_that_no_browser_sends_or_every_page_can_be_is_no_setting(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        Settings(_env_file=None, cors_origins=[origin])


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("Host", "127.0.0.1:8283", "evil.example"),
        ("Origin", OWN, "https://evil.example"),
        ("Sec-Fetch-Site", "same-origin", "cross-site"),
        ("Content-Type", "application/json", "text/plain"),
        ("Content-Length", "2", "20"),
        ("Idempotency-Key", "a", "b"),
        ("Authorization", "Bearer a", "Bearer b"),
    ],
)
async def test_a_header_that_decides_something_may_be_there_once(
    database: OneDatabase, name: str, first: str, second: str, keys: bool
) -> None:
    async with serving(database, ScriptedModel()) as server, browser(server) as http:
        if keys:
            await server.operate()
        for path in ("/v1/agents", "/mcp"):
            for values in ([first, second], [second, first]):
                sent = [(name, value) for value in values]
                answer = await http.post(path, content=b"{}", headers=sent)
                assert answer.status_code == 400, path
                assert answer.json()["error"]["code"] == "bad_request"


async def test_every_answer_says_to_browsers_what_they_may_do_with_it(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(database, ScriptedModel()) as server, browser(server) as http:
        agent = await server.create_agent()
        monkeypatch.setattr(server.services.keys, "any", _break)
        broken = await http.get("/v1/agents")
        monkeypatch.undo()
        answers = {
            "a page": await http.get("/console/agents"),
            "the docs": await http.get("/docs"),
            "a script": await http.get("/docs/swagger-ui-bundle.js"),
            "json": await http.get("/v1/agents"),
            "a file": await http.get(f"/v1/agents/{agent}/export"),
            "a refusal": await http.get("/v1/agents", headers={"Host": "evil.example"}),
            "openai's": await http.get("/v1/models/nothing"),
            "no route": await http.get("/v1/nothing"),
            "mcp": await http.post("/mcp", json=HELLO, headers=MCP),
            "a fault": broken,
        }
    assert broken.status_code == 500
    for name, answer in answers.items():
        headers = answer.headers
        assert headers["X-Content-Type-Options"] == "nosniff", name
        referrer = "same-origin" if name == "a page" else "no-referrer"
        assert headers["Referrer-Policy"] == referrer, name
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin", name
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; "), name
        assert policy.endswith("frame-ancestors 'none'"), name
        assert "script-src 'self' 'unsafe-inline'" not in policy
        assert ("script-src" in policy) is (name in ("a page", "the docs"))
        assert (headers["Cache-Control"] == "no-store") is (name != "a script"), name


async def _break(_: str | None) -> bool:
    raise ZeroDivisionError


def raw(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


@pytest.mark.parametrize("keys", [False, True])
async def test_malformed_headers_are_no_fault_of_the_server(
    database: OneDatabase, keys: bool
) -> None:
    refused = [("Host", "["), ("Host", "\xff"), ("Origin", "http://["), ("Origin", "\xff")]
    odd = ["", "[", "\xff", "a" * 5000, "application/json; charset=\xff", "9" * 30, "-1", "%", '"']
    names = ["Authorization", "Idempotency-Key", "Last-Event-ID", "Accept", "Cookie", "Range"]
    names += ["Content-Type", "Content-Length", "Transfer-Encoding", "If-None-Match", "Forwarded"]
    names += ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Mcp-Session-Id"]
    names += ["Mcp-Protocol-Version", "Sec-Fetch-Site", "Access-Control-Request-Method"]
    async with serving(database, ScriptedModel()) as server, browser(server) as http:
        if keys:
            await server.operate()
        for path in ("/v1/agents", "/mcp", "/", "/docs", "/v1/chat/completions"):
            for name, value in refused:
                answer = await http.post(path, headers=raw([(name, value)]), json={})
                assert answer.status_code == 400, (path, name, value)
            for name in names:
                for value in odd:
                    headers = [("Content-Type", "application/json")] * (name != "Content-Type")
                    headers.append((name, value))
                    answer = await http.post(path, headers=raw(headers), content=b"{}")
                    assert answer.status_code < 500, (path, name, value)


SDK = (
    "authorization,content-type,idempotency-key,openai-organization,openai-project,openai-beta,user-agent,"
    "x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,"
    "x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout,x-stainless-helper-method,"
    "http-referer,x-title,last-event-id,mcp-protocol-version,mcp-session-id"
)


def preflight(origin: str, method: str = "POST", headers: str = SDK) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers,
    }


@pytest.mark.parametrize("origins", [[TRUSTED], ["*"]])
async def test_a_trusted_page_may_send_what_sdks_send_and_read_what_they_read(
    database: OneDatabase, origins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(database, ScriptedModel(), cors_origins=origins) as server,
        browser(server, "198.51.100.1") as http,
    ):
        key = await server.create_key(scopes=["admin"])
        for path in ("/v1/chat/completions", "/v1/agents/", "/mcp", "/v1/nothing"):
            for method in ("GET", "POST", "DELETE"):
                asked = await http.options(path, headers=preflight(TRUSTED, method))
                assert asked.status_code == 200, asked.text
                assert method in asked.headers["Access-Control-Allow-Methods"]
                assert asked.headers["Access-Control-Allow-Headers"] == SDK
                assert asked.headers["Access-Control-Allow-Origin"] in (TRUSTED, "*")
        page = {**key, "Origin": TRUSTED}
        answers = [
            await http.get("/v1/agents", headers=page),
            await http.get("/v1/agents", headers={"Origin": TRUSTED}),
            await http.post("/v1/chat/completions", headers=page, json={"model": "nobody"}),
        ]
        monkeypatch.setattr(server.services.keys, "any", _break)
        answers.append(await http.get("/v1/agents", headers=page))
        monkeypatch.undo()
    assert [each.status_code for each in answers] == [200, 401, 400, 500]
    for answer in answers:
        assert answer.headers["Access-Control-Allow-Origin"] in (TRUSTED, "*")
        exposed = answer.headers["Access-Control-Expose-Headers"]
        assert {"X-Should-Retry", "Retry-After", "Idempotent-Replayed"} <= set(exposed.split(", "))
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origins", [[], ["https://other.example"]])
async def test_an_untrusted_page_gets_no_leave_to_send_or_to_read(
    database: OneDatabase, origins: list[str]
) -> None:
    async with (
        serving(database, ScriptedModel(), cors_origins=origins) as server,
        browser(server) as http,
    ):
        key = await server.create_key(scopes=["admin"])
        answers = [
            await http.options("/v1/agents", headers=preflight(TRUSTED)),
            await http.get("/v1/agents", headers={**key, "Origin": TRUSTED}),
        ]
    for answer in answers:
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_an_openai_error_of_the_servers_own_fault_has_openais_shape(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(database, ScriptedModel()) as server:
        monkeypatch.setattr(server.services.keys, "any", _break)
        answer = await server.http.get("/v1/models")
        monkeypatch.undo()
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (
        500,
        "server_error",
        "internal_error",
    )


LOOKED_FOR = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/openid-configuration",
    "/mcp/.well-known/openid-configuration",
    "/register",
    "/authorize",
    "/token",
    "/favicon.ico",
    "/robots.txt",
]


@pytest.mark.parametrize("key", [{}, {"Authorization": "Bearer nonsense"}])
async def test_what_clients_look_for_before_they_have_a_key_is_not_there_and_no_secret(
    database: OneDatabase, key: dict[str, str]
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        server.http.headers.pop("Authorization")
        for path in LOOKED_FOR:
            for answer in [
                await server.http.get(path, headers=key),
                await server.http.post(path, headers=key, data={"grant_type": "x"}),
                await server.http.post(path, headers=key, json={}),
            ]:
                assert answer.status_code == 404, path
                error = answer.json()["error"]
                assert ("no OAuth" in error["hint"]) is (path not in LOOKED_FOR[-2:]), path
        asked = await server.http.post("/mcp", json=HELLO, headers={**MCP, **key})
        assert asked.status_code == 401
        assert "resource_metadata" not in asked.headers["WWW-Authenticate"]
        for path in ("/v1/.well-known/x", "/registers", "/well-known", "/v1/register"):
            assert (await server.http.get(path, headers=key)).status_code == 401, path
