"""Keys by the command line, where a server listens without them, and a request that a kill cut off."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.cli.keys import check_keys
from memserver.errors import SetupError
from memserver.settings import Settings
from tests.support.http_app import serving
from tests.support.processes import client, command, eventually, rows, server, settings_on
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9"


def test_keys_and_tenants_are_made_listed_and_revoked(folder: Path, database: OneDatabase) -> None:
    settings = settings_on(database, NOBODY)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command(folder, settings, *arguments)

    assert run("tenants", "create", "acme").returncode == 0
    made = run(
        "keys", "create", "chat app", "--tenant", "acme", "--scope", "read", "--expires", "90d"
    )
    assert made.returncode == 0
    assert re.fullmatch(r"msk_\w{49}\n", made.stdout)
    assert "tenant acme (read)" in made.stderr
    other = run("keys", "create", "ops", "--scope", "admin").stdout.strip()
    listed = run("keys", "list").stdout
    assert all(text in listed for text in ("chat app", "acme", "ops", made.stdout[:12]))
    assert made.stdout.strip() not in listed
    assert "ops" not in run("keys", "list", "--tenant", "acme").stdout
    as_json = json.loads(run("keys", "list", "--json").stdout)
    assert [(each["name"], each["tenant"]) for each in as_json] == [
        ("chat app", "acme"),
        ("ops", "default"),
    ]
    assert not {"key", "secret"} & as_json[0].keys()
    revoked = run("keys", "revoke", made.stdout[:12])
    assert (revoked.returncode, "Revoked chat app" in revoked.stdout) == (0, True)
    stored = dict(rows(database, "SELECT name, revoked_at IS NOT NULL FROM api_keys"))
    assert stored == {"chat app": True, "ops": False}
    assert run("tenants", "list").stdout.split() == ["acme", "default"]
    assert other.startswith("msk_")


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["keys", "create", " "], "A key needs a name.", "what it is for"),
        (["keys", "create", "x", "--tenant", "nobody"], "no tenant 'nobody'", "/v1/tenants"),
        (["keys", "create", "x", "--scope", "root"], "no scope 'root'", "read, write, admin"),
        (["keys", "create", "x", "--expires", "soon"], "'soon' is no time", "90d"),
        (["keys", "create", "x", "--expires", "2001-01-01"], "is over already", "later"),
        (["keys", "create", "x", "--expires", "999999w"], "'999999w'", "90d"),
        (["keys", "revoke", "msk_unknown"], "0 keys are named", "keys list"),
        (["keys", "list", "--tenant", "nobody"], "no tenant 'nobody'", "/v1/tenants"),
        (["tenants", "create", "a b"], "'a b' is no name", "letters"),
        (["tenants", "create", "default"], "a tenant 'default' already", ""),
    ],
)
def test_a_command_that_can_not_be_done_says_why(
    folder: Path, database: OneDatabase, arguments: list[str], problem: str, hint: str
) -> None:
    done = command(folder, settings_on(database, NOBODY), *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert problem in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""


async def test_without_keys_a_server_listens_on_the_loopback_only(
    folder: Path, database: OneDatabase
) -> None:
    settings = settings_on(database, NOBODY)
    refused = command(folder, settings, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 1
    assert (
        "no API keys, so memserver listens on the loopback only, not on 0.0.0.0" in refused.stderr
    )
    assert "memserver keys create" in refused.stderr
    everyone = {**settings, "cors_origins": '["*"]'}
    with pytest.raises(SetupError, match="MEMSERVER_CORS_ORIGINS can't be every origin"):
        check_keys(database.app, Settings(**{"_env_file": None, **settings, "cors_origins": ["*"]}))
    proxied = {**settings, "trusted_proxies": "127.0.0.1"}
    with pytest.raises(SetupError, match="no proxy can be trusted"):
        check_keys(database.app, Settings(**{"_env_file": None, **proxied}))
    with server(folder, settings) as process:
        assert "There are no API keys: only this machine" in process.log_text()
        async with client(process) as user:
            await user.create_agent()
            made = command(folder, settings, "keys", "create", "me")
            await eventually(lambda: httpx2.get(f"{process.url}/v1/agents").status_code == 401)
    with server(folder, everyone, "--host", "0.0.0.0") as process:
        assert "There are no API keys" not in process.log_text()
        without = httpx2.get(f"{process.url}/v1/agents")
        key = {"Authorization": f"Bearer {made.stdout.strip()}"}
        with_key = httpx2.get(f"{process.url}/v1/agents", headers=key)
    assert without.status_code == 401
    assert (with_key.status_code, len(with_key.json()["items"])) == (200, 1)


async def test_a_request_whose_server_was_killed_is_done_once_when_it_is_repeated(
    folder: Path, database: OneDatabase
) -> None:
    asked: list[str] = []
    never = asyncio.Event()

    async def embed(request: Request) -> JSONResponse:
        texts = (await request.json())["input"]
        asked.extend(texts)
        if len(asked) == 1:
            await asyncio.wait_for(never.wait(), 20)
        vectors = [{"index": index, "embedding": [1.0] * 384} for index, _ in enumerate(texts)]
        return JSONResponse({"data": vectors})

    app = Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"])])
    with serving(app) as embedder:
        settings = settings_on(
            database, NOBODY, embedding_base_url=f"{embedder}/v1", lease_seconds=2
        )
        request = {
            "json": {"passages": [{"text": "a passage"}]},
            "headers": {"Idempotency-Key": "once"},
        }
        with server(folder, settings) as first:
            async with client(first) as user:
                url = f"/v1/agents/{await user.create_agent()}/archival"
                post = asyncio.create_task(user.http.post(url, **request))
                await eventually(lambda: asked)
                first.kill()
                [outcome] = await asyncio.gather(post, return_exceptions=True)
        assert isinstance(outcome, httpx2.TransportError)
        with server(folder, settings) as second:
            async with client(second) as user:
                answers = [await user.http.post(url, **request) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
    assert "Idempotent-Replayed" not in answers[0].headers
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert rows(database, "SELECT count(*) FROM passages") == [(1,)]


def test_the_operators_key_of_the_settings_is_there_from_the_first_migration_on(
    folder: Path, database: OneDatabase
) -> None:
    generated = command(folder, {}, "keys", "generate").stdout.strip()
    (folder / "admin_key").write_text(f"{generated}\n", encoding="utf-8")
    settings = settings_on(database, NOBODY, admin_key_file=folder / "admin_key")
    for _ in range(2):
        assert command(folder, settings, "migrate").returncode == 0
    stored = "SELECT tenant, scopes, revoked_at IS NOT NULL FROM api_keys"
    assert rows(database, stored) == [("default", ["admin"], False)]
    with server(folder, settings) as process:
        headers = {"Authorization": f"Bearer {generated}"}
        for sent, status in ((headers, 200), ({}, 401)):
            assert httpx2.get(f"{process.url}/v1/keys", headers=sent).status_code == status
    assert command(folder, settings, "keys", "revoke", generated[:12]).returncode == 0
    assert command(folder, settings, "migrate").returncode == 0
    assert rows(database, stored) == [("default", ["admin"], True)]
    mistyped = command(folder, settings_on(database, NOBODY, admin_key="hunter2"), "migrate")
    assert "MEMSERVER_ADMIN_KEY is no API key." in mistyped.stderr
    assert "hunter2" not in mistyped.stderr
