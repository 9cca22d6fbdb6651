"""API keys: who gets in, with which scope, for how long; and what a server without keys lets in."""

import re
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from memserver.api.app import create_app
from memserver.api.middleware.access import ADMIN, OPEN
from memserver.settings import Settings
from memserver.testing.scripted import ScriptedModel, say
from tests.memserver.api.walk import NO_ID, Operation, operations
from tests.support.server import OneDatabase, Server, serving

NAMES = {"turn": "1", "section": "human", "tenant": "nobody"}


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def expected_scope(operation: Operation) -> str:
    if re.match(r"/v1/(keys|tenants|operations|endpoint|reports)(/|$)", operation.path):
        return "admin"
    return "read" if operation.method == "get" else "write"


async def test_every_route_wants_a_key_and_its_scope(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        keys = {
            scopes: await server.create_key(scopes=scopes.split())
            for scopes in ("read", "write", "read write", "admin")
        }
        document = (await server.http.get("/openapi.json")).json()
        del server.http.headers["Authorization"]
        for operation in operations(document):
            ids = {name: NAMES.get(name, NO_ID) for name in operation.ids}
            request = operation.request(ids)
            without = await server.http.request(**request)
            if not operation.needs_key:
                assert without.status_code in (200, 503), operation.name
                continue
            assert code_of(without) == (401, "missing_api_key"), operation.name
            assert without.headers["WWW-Authenticate"] == 'Bearer realm="memserver"'
            scope = expected_scope(operation)
            for scopes, key in keys.items():
                answer = await server.http.request(**request, headers=key)
                case = f"{operation.name} with {scopes}: {answer.text}"
                if scope in scopes or scopes == "admin":
                    assert answer.status_code not in (401, 403, 500), case
                else:
                    assert code_of(answer) == (403, "forbidden"), case
                    assert f'scope="{scope}"' in answer.headers["WWW-Authenticate"], case
    open_paths = {each.path for each in operations(document) if not each.needs_key}
    assert open_paths == {path for path in OPEN if path.startswith("/v1")}


async def test_the_document_describes_keys_scopes_and_their_errors(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        document = (await server.http.get("/openapi.json")).json()
        again = (await server.http.get("/openapi.json")).json()
    assert again == document
    scheme = document["components"]["securitySchemes"]["api_key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for operation in operations(document):
        reported = {"401", "403", "429"} & operation.spec["responses"].keys()
        if operation.needs_key:
            assert operation.spec["security"] == [{"api_key": [expected_scope(operation)]}]
            assert reported == {"401", "403", "429"}, operation.name
        else:
            assert not reported, operation.name
        names = [each["name"] for each in operation.spec.get("parameters", ())]
        assert names.count("Idempotency-Key") == (operation.method == "post"), operation.name
    assert all(any(path.startswith(root) for path in document["paths"]) for root in ADMIN)


async def test_a_key_is_shown_once_and_stored_as_a_hash(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        made = (
            await server.http.post("/v1/keys", json={"name": "chat", "scopes": ["read"]})
        ).json()
        got = (await server.http.get(f"/v1/keys/{made['id']}")).json()
        listed = (await server.http.get("/v1/keys")).json()["items"]
        key = {"Authorization": f"Bearer {made['key']}"}
        assert (await server.http.get("/v1/agents", headers=key)).status_code == 200
        used = (await server.http.get(f"/v1/keys/{made['id']}")).json()
        stored = str(server.rows("SELECT * FROM api_keys"))
    assert re.fullmatch(r"msk_[0-9A-Za-z]{49}", made["key"])
    assert made["key"].startswith(made["prefix"])
    assert "key" not in got
    assert got == {name: value for name, value in made.items() if name != "key"} == listed[1]
    assert made["key"] not in stored
    assert got["last_used_at"] is None
    assert used["last_used_at"] is not None


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer nonsense",
        "Bearer msk_" + "0" * 49,
        "Bearer msk_ü" + "0" * 48,
        "Bearer " + "x" * 5000,
    ],
)
async def test_what_is_no_key_lets_nobody_in(database: OneDatabase, header: str) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        headers = [(b"authorization", header.encode("latin-1"))]
        answer = await server.http.get("/v1/agents", headers=headers)
        with_slip = server.http.headers["Authorization"][:-1] + "~"
        mistyped = await server.http.get("/v1/agents", headers={"Authorization": with_slip})
        lower = server.http.headers["Authorization"].replace("Bearer", "bearer")
        well = await server.http.get("/v1/agents", headers={"Authorization": lower})
    wanted = "invalid_api_key" if header.partition(" ")[2] and "Bearer" in header else "missing"
    assert answer.status_code == 401
    assert answer.json()["error"]["code"].startswith(wanted)
    assert code_of(mistyped) == (401, "invalid_api_key")
    assert 'error="invalid_token"' in mistyped.headers["WWW-Authenticate"]
    assert well.status_code == 200


async def test_an_expired_key_lets_nobody_in(database: OneDatabase) -> None:
    clock = Clock()
    async with serving(database, ScriptedModel(), clock=clock) as server:
        await server.operate()
        hour = clock.now + timedelta(hours=1)
        key = await server.create_key(expires_at=hour.isoformat())
        late = await server.http.post(
            "/v1/keys", json={"name": "x", "expires_at": clock.now.isoformat()}
        )
        before = await server.http.get("/v1/agents", headers=key)
        clock.now = hour - timedelta(microseconds=1)
        still = await server.http.get("/v1/agents", headers=key)
        clock.now = hour
        after = await server.http.get("/v1/agents", headers=key)
    assert before.status_code == still.status_code == 200
    assert code_of(after) == (401, "invalid_api_key")
    assert "expired" in after.json()["error"]["message"]
    assert code_of(late) == (422, "invalid_input")


async def test_a_revoked_key_is_out_at_once_here_and_soon_in_other_processes(
    database: OneDatabase,
) -> None:
    clock = Clock()
    model = ScriptedModel()
    async with (
        serving(database, model, clock=clock) as here,
        serving(database, model, clock=clock, key_cache_seconds=10) as there,
    ):
        await here.operate()
        key = await here.create_key()
        servers = (here, there)
        for server in servers:
            assert (await server.http.get("/v1/agents", headers=key)).status_code == 200
        [_, made] = (await here.http.get("/v1/keys")).json()["items"]
        assert (await here.http.delete(f"/v1/keys/{made['id']}")).status_code == 204
        first = (await here.http.get(f"/v1/keys/{made['id']}")).json()["revoked_at"]
        assert (await here.http.delete(f"/v1/keys/{made['id']}")).status_code == 204
        second = (await here.http.get(f"/v1/keys/{made['id']}")).json()["revoked_at"]
        at_once = [
            (await server.http.get("/v1/agents", headers=key)).status_code for server in servers
        ]
        clock.now += timedelta(seconds=10)
        later = [
            (await server.http.get("/v1/agents", headers=key)).status_code for server in servers
        ]
    assert first == second
    assert at_once == [401, 200]
    assert later == [401, 401]


async def test_the_first_key_of_all_counts_elsewhere_at_once_if_it_is_shown(
    database: OneDatabase,
) -> None:
    clock = Clock()
    async with (
        serving(database, ScriptedModel(), clock=clock) as here,
        serving(database, ScriptedModel(), clock=clock, key_cache_seconds=10) as there,
    ):
        assert (await there.http.get("/v1/agents")).status_code == 200
        await here.operate()
        acme = await here.create_tenant("acme")
        still_open = await there.http.get("/v1/agents")
        own = await there.http.get("/v1/tenants", headers=acme)
        closed = await there.http.get("/v1/agents")
    assert still_open.status_code == 200
    assert closed.status_code == 401
    assert [each["tenant"] for each in own.json()["items"]] == ["acme"]


async def test_a_key_costs_a_request_no_statement_but_once_in_a_while(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        ring = server.services.keys
        look_up = ring._ask

        async def counted(digest: bytes) -> Any:
            asked.append(digest)
            return await look_up(digest)

        monkeypatch.setattr(ring, "_ask", counted)
        key = await server.create_key()
        for _ in range(5):
            assert (await server.http.get("/v1/agents", headers=key)).status_code == 200
        unknown = {"Authorization": "Bearer msk_nonsense"}
        assert (await server.http.get("/v1/agents", headers=unknown)).status_code == 401
    assert len(asked) == len(set(asked)) == 2  # the operator's and this one


async def test_once_there_is_a_key_there_is_no_way_back_to_an_open_server(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        assert (await server.http.get("/v1/agents")).status_code == 200
        made = (await server.http.post("/v1/keys", json={"name": "a", "scopes": ["admin"]})).json()
        closed = await server.http.get("/v1/agents")
        key = {"Authorization": f"Bearer {made['key']}"}
        gone = await server.http.delete(f"/v1/keys/{made['id']}", headers=key)
        still_closed = await server.http.get("/v1/agents")
    async with serving(database, ScriptedModel()) as server:
        after_restart = await server.http.get("/v1/agents")
    assert gone.status_code == 204
    for answer in (closed, still_closed, after_restart):
        assert code_of(answer) == (401, "missing_api_key")


@pytest.mark.parametrize(
    ("headers", "client", "status"),
    [
        ({}, "127.0.0.1", 200),
        ({"Host": "127.0.0.1:8283"}, "127.0.0.1", 200),
        ({"Host": "[::1]:8283"}, "::1", 200),
        ({"Origin": "https://trusted.example"}, "127.0.0.1", 200),
        ({"Authorization": "Bearer whatever-the-sdk-wants"}, "127.0.0.1", 200),
        ({"Host": "evil.example:8283"}, "127.0.0.1", 403),
        ({"Host": "localhost.evil.example"}, "127.0.0.1", 403),
        ({"Origin": "https://evil.example"}, "127.0.0.1", 403),
        ({"Origin": "null"}, "127.0.0.1", 403),
        ({}, "192.0.2.7", 403),
    ],
)
async def test_without_keys_only_the_own_machine_is_answered_and_no_web_page(
    database: OneDatabase, headers: dict[str, str], client: str, status: int
) -> None:
    trusted = ["https://trusted.example"]
    async with serving(database, ScriptedModel(), cors_origins=trusted) as server:
        app = server.http._transport.app  # type: ignore[attr-defined]
        transport = httpx2.ASGITransport(app, client=(client, 1))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost:8283"
        ) as http:
            answer = await http.get("/v1/agents", headers=headers)
            health = await http.get("/v1/health", headers=headers)
    assert answer.status_code == status, answer.text
    assert health.status_code == 200
    if status == 403:
        assert "memserver keys create" in answer.json()["error"]["hint"]


async def test_a_key_that_asks_too_often_learns_when_to_come_back(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), rate_limit=1, rate_limit_burst=3) as server:
        await server.operate()
        keys = [await server.create_key() for _ in range(1)]
        answers = [await server.http.get("/v1/agents", headers=keys[0]) for _ in range(4)]
        health = await server.http.get("/v1/health")
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert code_of(answers[-1]) == (429, "rate_limited")
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
    assert health.status_code == 200


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    database: OneDatabase,
) -> None:
    sent: list[int] = []

    async def body(chunks: int) -> AsyncIterator[bytes]:
        for number in range(chunks):
            sent.append(number)
            yield b" " * 400

    async with serving(database, ScriptedModel([say("hi")]), request_max_bytes=1000) as server:
        headers = {"Content-Type": "application/json"}
        declared = await server.http.post(
            "/v1/agents", content=body(10), headers={**headers, "Content-Length": "4000"}
        )
        read_of_declared = len(sent)
        sent.clear()
        chunked = await server.http.post("/v1/agents", content=body(10), headers=headers)
        keyed = await server.http.post(
            "/v1/agents", content=body(10), headers={**headers, "Idempotency-Key": "k"}
        )
        fits = await server.http.post("/v1/agents", content=body(2), headers=headers)
        agent = await server.create_agent()
        usable = await server.say(agent, "hello")
    for answer in (declared, chunked, keyed):
        assert code_of(answer) == (413, "request_too_large")
    assert "MEMSERVER_REQUEST_MAX_BYTES" in declared.json()["error"]["hint"]
    assert read_of_declared <= 1
    assert len(sent) < 10
    assert code_of(fits) == (400, "invalid_json")
    assert usable["text"] == "hi"


@pytest.mark.parametrize("origins", [[], ["https://chat.example"], ["*"]])
async def test_a_web_page_may_call_where_the_settings_say_so(
    database: OneDatabase, origins: list[str]
) -> None:
    async with serving(database, ScriptedModel(), cors_origins=origins) as server:
        await server.operate()
        asked = {
            "Origin": "https://chat.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,idempotency-key",
        }
        del server.http.headers["Authorization"]
        preflight = await server.http.options("/v1/agents", headers=asked)
        refused = await server.http.get("/v1/agents", headers={"Origin": "https://chat.example"})
        other = await server.http.get("/v1/agents", headers={"Origin": "https://evil.example"})
    allowed = "Access-Control-Allow-Origin"
    assert (allowed in preflight.headers) is bool(origins)
    assert (preflight.status_code == 200) is bool(origins)
    assert refused.status_code == 401
    assert (allowed in refused.headers) is bool(origins)
    assert (allowed in other.headers) is (origins == ["*"])


def test_the_server_reads_its_limits_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSERVER_CORS_ORIGINS", '["https://chat.example"]')
    assert Settings(_env_file=None).cors_origins == ["https://chat.example"]
    names = [each.cls.__name__ for each in create_app().user_middleware]
    assert names == ["HeadAndOptions", "Access", "BodyLimit", "Idempotency"]


async def test_the_list_of_keys_has_pages(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        for number in range(4):
            await server.create_key(name=f"key {number}")
        found, after = await pages(server, "/v1/keys", limit=2)
    assert found == ["a key", "key 0", "key 1", "key 2", "key 3"]
    assert after is None


async def pages(server: Server, path: str, limit: int) -> tuple[list[str], str | None]:
    found: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = (await server.http.get(path, params=query)).json()
        found += [item["name"] for item in page["items"]]
        if page["next"] is None:
            return found, page["next"]
        query["after"] = page["next"]


async def test_why_the_server_is_not_ready_is_for_operators(database: OneDatabase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {"llm_base_url": f"http://127.0.0.1:{port}/v1", "llm_model": "stub"}
    async with serving(database, ScriptedModel(), llm_mode="tools", **settings) as server:
        anybody = await server.http.get("/v1/ready")
        await server.operate()
        operator = await server.http.get("/v1/ready")
        tenant = await server.create_tenant("acme")
        others = [
            await server.http.get("/v1/ready", headers=each)
            for each in ({"Authorization": ""}, {"Authorization": "Bearer msk_no"}, tenant)
        ]
    for answer in (anybody, operator, *others):
        assert answer.status_code == 503
        assert str(port) not in answer.text
    details = [_detail_of_model(answer) for answer in (anybody, operator)]
    assert all("can't be reached: Connection refused" in each for each in details), details
    assert {_detail_of_model(answer)[:16] for answer in others} == {"It is not ready."}


def _detail_of_model(answer: httpx2.Response) -> str:
    [detail] = [each["detail"] for each in answer.json()["components"] if each["name"] == "model"]
    return str(detail)
