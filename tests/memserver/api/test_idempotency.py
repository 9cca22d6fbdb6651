"""A request that is repeated with its Idempotency-Key gets the first answer, whatever happened to the first."""

import asyncio
import copy
from functools import partial
from typing import Any

import httpx2
import psycopg
import pytest
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.storage.database import OneCommit
from memserver.storage.idempotency import IdempotencyKeys
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from tests.memserver.api.furnished import content, furnish, model, names_for, request_of
from tests.memserver.api.walk import operations
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, Server, serving
from tests.support.servers import wait_for

REPLAYED = "Idempotent-Replayed"
SHOWN_ONCE = {"/v1/keys": ("key", "msk_"), "/v1/webhooks": ("secret", "whsec_")}
CANCEL = "/turns/{turn}/cancel"
KEY_OF_A_TURN = (
    "/messages",
    "/events",
    "/messages/import",
    "/approval",
    "/result",
    CANCEL,
    "/chat/completions",
    "/responses",
)
"""Routes where the turn has the key, or its call."""
PASSAGES = {"passages": [{"text": "a passage"}]}


class HoldingEmbedder(HashingEmbedder):
    """Embeds when it is let go; says how many wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)

    @override
    async def embed(self, texts: list[str]) -> list[Vector]:  # type: ignore[override]
        self.waiting.release()
        await self.gate.wait()
        return await super().embed(texts)


class FailingEmbedder(HashingEmbedder):
    """Fails for the first time."""

    failed = False

    @override
    async def embed(self, texts: list[str]) -> list[Vector]:  # type: ignore[override]
        if not self.failed:
            self.failed = True
            raise EmbeddingError("Not yet.")
        return await super().embed(texts)


def key(name: str = "k") -> dict[str, str]:
    return {"Idempotency-Key": name}


def other(request: dict[str, Any]) -> dict[str, Any]:
    """The same request with another last value in its body, or another query."""
    changed: dict[str, Any] = copy.deepcopy(request)
    if not _change(changed.get("json", {})):
        changed["params"]["name"] = "another"
    return changed


def _change(value: Any) -> bool:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in reversed(list(items)):
        if name in {"role", "type"}:
            continue  # they have a few values only
        if isinstance(item, bool):
            value[name] = not item
            return True
        if isinstance(item, str | int):
            value[name] = item + type(item)(2)
            return True
        if isinstance(item, dict | list) and _change(item):
            return True
    return False


def same(first: httpx2.Response, second: httpx2.Response) -> bool:
    return (first.status_code, first.content) == (second.status_code, second.content)


def count(server: Server, table: str) -> int:
    number: int = server.rows(f"SELECT count(*) FROM {table}")[0][0]
    return number


async def test_every_post_is_done_once_and_answered_alike(
    database: OneDatabase, mcp_url: str
) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        operator = dict(server.http.headers)
        admin, ids = await furnish(server, "acme", mcp_url, run_jobs=False)
        document = (await server.http.get("/openapi.json")).json()
        posts = [each for each in operations(document) if each.method == "post"]
        for number, operation in enumerate(posts):
            caller = operator if operation.path == "/v1/tenants" else admin
            headers = {**caller, **key(f"key {number}")}
            names = names_for(operation, ids)
            if operation.path.endswith("/try"):  # a tool that the server can call
                names |= {"name": "wiki__add"}
            request = request_of(operation, names)
            first = await server.http.request(**request, headers=headers)
            assert first.status_code < 300, f"{operation.name}: {first.text}"
            if operation.path.endswith(CANCEL):
                assert await asyncio.to_thread(wait_for, lambda: passed_over(server, ids), 30)
            done = content(database, "acme"), content(database, "example")
            second = await server.http.request(**request, headers=headers)
            assert (content(database, "acme"), content(database, "example")) == done, operation.name
            assert second.status_code == first.status_code
            if operation.path in SHOWN_ONCE:
                field, prefix = SHOWN_ONCE[operation.path]
                assert first.json()[field].startswith(prefix)
                assert second.json() == {**first.json(), field: None}
            else:
                assert second.content == first.content, operation.name
            if operation.path.endswith(KEY_OF_A_TURN):
                assert REPLAYED not in second.headers, operation.name
            else:
                assert second.headers[REPLAYED] == "true", operation.name
            if operation.path.endswith(CANCEL):
                continue  # all that it says is the turn
            misused = await server.http.request(**other(request), headers=headers)
            assert misused.status_code == 409, f"{operation.name}: {misused.text}"
            assert "used with another request" in misused.json()["error"]["message"]


def passed_over(server: Server, ids: dict[str, str]) -> bool:
    """Whether the agent whose turn was cancelled is ready for the next one."""
    query = f"SELECT done_turn FROM agent_state WHERE agent_id = '{ids['cancelled_agent_id']}'"
    return server.rows(query) == [(1,)]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_repetition_waits_for_the_first_that_still_runs(
    database: OneDatabase, elsewhere: bool
) -> None:
    embedder = HoldingEmbedder()
    async with (
        serving(database, ScriptedModel(), embedder=embedder) as server,
        serving(database, ScriptedModel(), embedder=HashingEmbedder()) as second_server,
    ):
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        first = asyncio.create_task(server.http.post(url, json=PASSAGES, headers=key()))
        await embedder.waiting.acquire()
        asked = second_server if elsewhere else server
        repeated = asyncio.create_task(asked.http.post(url, json=PASSAGES, headers=key()))
        unlike = await asked.http.post(url, json={"passages": [{"text": "b"}]}, headers=key())
        assert not first.done()
        assert not repeated.done()
        embedder.gate.set()
        answers = [await first, await repeated]
        stored = count(server, "passages")
    assert unlike.status_code == 409
    assert answers[0].status_code == 201
    assert same(*answers)
    assert REPLAYED not in answers[0].headers
    assert answers[1].headers[REPLAYED] == "true"
    assert stored == 1


async def test_of_two_processes_that_both_hold_a_request_for_theirs_one_can_commit(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first stalls for longer than its claim lasts, and then continues."""
    embedder = HoldingEmbedder()

    async def stalled(self: IdempotencyKeys, claim: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(IdempotencyKeys, "_renew", stalled)
    async with (
        serving(database, ScriptedModel(), embedder=embedder, lease_seconds=0.1) as first_server,
        serving(database, ScriptedModel()) as second_server,
    ):
        agent = await first_server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        first = asyncio.create_task(first_server.http.post(url, json=PASSAGES, headers=key()))
        await embedder.waiting.acquire()
        took_over = await second_server.http.post(url, json=PASSAGES, headers=key())
        embedder.gate.set()
        too_late = await first
        again = await first_server.http.post(url, json=PASSAGES, headers=key())
        stored = count(first_server, "passages")
    assert took_over.status_code == 201
    assert REPLAYED not in took_over.headers
    assert (too_late.status_code, too_late.json()["error"]["code"]) == (503, "lease_lost")
    assert same(again, took_over)
    assert stored == 1


async def test_a_running_request_keeps_its_claim_however_long_it_takes(
    database: OneDatabase,
) -> None:
    embedder = HoldingEmbedder()
    async with serving(database, ScriptedModel(), embedder=embedder, lease_seconds=0.1) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        first = asyncio.create_task(server.http.post(url, json=PASSAGES, headers=key()))
        await embedder.waiting.acquire()
        claims = "SELECT claim, claimed_until FROM idempotency_keys"
        [(claim, until)] = server.rows(claims)
        later = partial(server.rows, f"{claims} WHERE claimed_until > %s", until)
        assert await asyncio.to_thread(wait_for, later, 30)
        [(still, _)] = server.rows(claims)
        embedder.gate.set()
        assert (await first).status_code == 201
    assert still == claim


class Crash:
    """Ends a task's use of the database at its n-th statement, before or after it, for good."""

    def __init__(self, at: int, *, after: bool) -> None:
        self._at = at
        self._after = after
        self._seen = 0
        self.victim: asyncio.Task[httpx2.Response] | None = None
        self.happened = False

    def install(self, patch: pytest.MonkeyPatch) -> None:
        execute = psycopg.AsyncConnection.execute

        async def crashing(connection: Any, *args: Any, **kwargs: Any) -> Any:
            if asyncio.current_task() is not self.victim:
                return await execute(connection, *args, **kwargs)
            self._seen += 1
            if self.happened or (self._seen == self._at and not self._after):
                self.happened = True
                raise psycopg.OperationalError("The process is dead.")
            cursor = await execute(connection, *args, **kwargs)
            if self._seen == self._at:
                self.happened = True
                raise psycopg.OperationalError("The process is dead.")
            return cursor

        patch.setattr(psycopg.AsyncConnection, "execute", crashing)


@pytest.mark.parametrize("after", [False, True])
async def test_a_request_whose_process_dies_anywhere_is_done_once(
    database: OneDatabase, after: bool
) -> None:
    async with serving(database, ScriptedModel(), lease_seconds=0.2) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        for at in range(1, 100):
            headers = key(f"{at}")
            crash = Crash(at, after=after)
            with pytest.MonkeyPatch.context() as patch:
                crash.install(patch)
                crash.victim = asyncio.create_task(
                    server.http.post(url, json=PASSAGES, headers=headers)
                )
                died = await crash.victim
            repeated = await server.http.post(url, json=PASSAGES, headers=headers)
            again = await server.http.post(url, json=PASSAGES, headers=headers)
            assert repeated.status_code == 201, f"at {at}: {repeated.text}"
            assert same(repeated, again), at
            assert count(server, "passages") == at
            if not crash.happened:
                break
            assert died.status_code == 503, f"at {at}: {died.text}"
        assert not crash.happened
        assert at > 8
        assert same(died, repeated)


async def test_a_request_whose_process_dies_after_the_commit_is_answered_from_the_record(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = OneCommit.commit

    async def dying(whole: OneCommit) -> None:
        written = whole._transaction is not None
        await commit(whole)
        if written and answers:
            raise SystemExit("The process is dead.")

    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        recorded = IdempotencyKeys.record
        answers = []

        async def noting(keys: IdempotencyKeys, tx: Any, claim: Any, answer: Any) -> None:
            answers.append(answer)
            await recorded(keys, tx, claim, answer)

        with monkeypatch.context() as patch:
            patch.setattr(IdempotencyKeys, "record", noting)
            patch.setattr(OneCommit, "commit", dying)
            dead = asyncio.get_running_loop().create_future()

            async def post() -> None:
                try:
                    await server.http.post(url, json=PASSAGES, headers=key())
                except SystemExit as end:
                    dead.set_result(end)

            await post()
            await dead
        repeated = await server.http.post(url, json=PASSAGES, headers=key())
        stored = count(server, "passages")
    assert repeated.status_code == 201
    assert repeated.content == answers[0].body
    assert repeated.headers[REPLAYED] == "true"
    assert stored == 1


async def test_the_same_request_is_known_however_its_json_is_written(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        headers = {**key(), "Content-Type": "application/json"}
        first = await server.http.post(
            "/v1/agents", content=b'{"name": "ada", "metadata": {"a": 1}}', headers=headers
        )
        spaced = await server.http.post(
            "/v1/agents", content=b'{"metadata":{"a":1},\n "name":"ada"}', headers=headers
        )
        elsewhere = await server.http.post(
            "/v1/collections", content=b'{"name": "ada", "metadata": {"a": 1}}', headers=headers
        )
    assert first.status_code == 201
    assert same(first, spaced)
    assert elsewhere.status_code == 409


async def test_two_tenants_may_use_the_same_key(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        tenants = [await server.create_tenant(name) for name in ("a", "b")]
        bodies = [{"name": "one"}, {"name": "two"}]
        answers = [
            await server.http.post("/v1/agents", json=body, headers={**tenant, **key()})
            for tenant, body in zip(tenants, bodies, strict=True)
        ]
    assert [answer.status_code for answer in answers] == [201, 201]


async def test_a_refusal_is_kept_and_what_may_end_otherwise_is_not(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), embedder=FailingEmbedder()) as server:
        await server.create_agent(name="taken")
        taken = {"name": "taken"}
        refused = await server.http.post("/v1/agents", json=taken, headers=key("refused"))
        [agent] = (await server.get(""))["items"]
        url = f"/v1/agents/{agent['id']}"
        await server.http.patch(url, json={"name": "renamed"})
        still = await server.http.post("/v1/agents", json=taken, headers=key("refused"))
        invalid = await server.http.post("/v1/agents", json={"nam": 1}, headers=key("typo"))
        fixed = await server.http.post("/v1/agents", json={"name": "x"}, headers=key("typo"))
        failed = await server.http.post(f"{url}/archival", json=PASSAGES, headers=key("failed"))
        worked = await server.http.post(f"{url}/archival", json=PASSAGES, headers=key("failed"))
    assert refused.status_code == 409
    assert same(refused, still)
    assert still.headers[REPLAYED] == "true"
    assert [invalid.status_code, fixed.status_code] == [422, 201]
    assert [failed.status_code, worked.status_code] == [503, 201]
    assert REPLAYED not in worked.headers


async def test_a_key_is_free_again_when_its_time_is_over(database: OneDatabase) -> None:
    hour_ago = "UPDATE idempotency_keys SET expires_at = now() - interval '1 hour' RETURNING key"
    async with serving(database, ScriptedModel(), idempotency_seconds=7200) as server:
        first = await server.http.post("/v1/agents", json={"name": "a"}, headers=key())
        [(left,)] = server.rows("SELECT expires_at - now() FROM idempotency_keys")
        server.rows(hour_ago)
        fresh = await server.http.post("/v1/agents", json={"name": "b"}, headers=key())
        server.rows(hour_ago)
        await server.http.post("/v1/agents", json={"name": "c"}, headers=key("fresh"))
        forgotten = await server.services.idempotency.forget_expired()
        kept = server.rows("SELECT key FROM idempotency_keys")
    assert 7000 < left.total_seconds() <= 7200
    assert [first.json()["name"], fresh.json()["name"]] == ["a", "b"]
    assert forgotten == 1
    assert kept == [("fresh",)]


async def test_a_kept_answer_has_no_secret(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        body = {"name": "mine", "scopes": ["admin"]}
        made = await server.http.post("/v1/keys", json=body, headers=key())
        secret = made.json()["key"]
        server.http.headers["Authorization"] = f"Bearer {secret}"
        again = await server.http.post("/v1/keys", json=body, headers=key())
        stored = [bytes(kept) for (kept,) in server.rows("SELECT body FROM idempotency_keys")]
    assert made.status_code == again.status_code == 201
    assert again.json() == {**made.json(), "key": None}
    assert secret.encode() not in stored[0]


@pytest.mark.parametrize("name", ["", "k" * 201])
async def test_a_key_that_is_none_is_refused(database: OneDatabase, name: str) -> None:
    async with serving(database, ScriptedModel()) as server:
        answer = await server.http.post("/v1/agents", json={}, headers=key(name))
        usable = await server.http.post("/v1/agents", json={}, headers=key("k" * 200))
        nowhere = await server.http.post("/v1/nowhere", json={}, headers=key("nowhere"))
        kept = server.rows("SELECT key FROM idempotency_keys")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")
    assert usable.status_code == 201
    assert nowhere.status_code == 404
    assert kept == [("k" * 200,)]


async def test_requests_with_keys_hold_no_connection_while_they_wait_for_an_embedder(
    database: OneDatabase,
) -> None:
    embedder = HoldingEmbedder()
    async with serving(
        database, ScriptedModel(), embedder=embedder, database_pool_size=2
    ) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        posts = [
            asyncio.create_task(server.http.post(url, json=PASSAGES, headers=key(f"{number}")))
            for number in range(5)
        ]
        for _ in posts:
            waiting = asyncio.create_task(embedder.waiting.acquire())
            done, _ = await asyncio.wait([waiting, *posts], return_when="FIRST_COMPLETED")
            assert waiting in done, [post.result().text for post in posts if post in done]
        seen = await server.http.get(f"/v1/agents/{agent}")
        embedder.gate.set()
        answers = await asyncio.gather(*posts)
        stored = count(server, "passages")
    assert seen.status_code == 200
    assert [answer.status_code for answer in answers] == [201] * 5
    assert stored == 5
