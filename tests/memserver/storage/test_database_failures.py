"""What follows when the database fails in one of its many ways: who waits, who reads what, and what is lost (nothing)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from threading import Barrier
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from memserver.errors import DatabaseError
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.migrate import prepare_embedded
from memserver.storage.repeating import repeat
from memserver.testing.scripted import ScriptedModel, Step, say
from memserver.wiring import database as database_module
from tests.support.server import OneDatabase, Server, serving

SECRETS = ("psycopg", "FATAL", "base/", "/tmp/", "memserver_app", "cannot execute", "ERROR")


@contextmanager
def superuser(database: OneDatabase) -> Iterator[psycopg.Connection]:
    writing = "-c default_transaction_read_only=off"
    with psycopg.connect(database.superuser, autocommit=True, options=writing) as connection:
        yield connection


def end_connections(connection: psycopg.Connection) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def set_read_only(database: OneDatabase, value: str) -> None:
    """As a failover to a standby does: what is connected is cut off, what connects can't write."""
    with superuser(database) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(
                name, sql.SQL(value)
            )
        )
        end_connections(connection)


async def post(server: Server, agent: str, text: str) -> Any:
    return await server.http.post(
        f"/v1/agents/{agent}/messages", json={"text": text}, headers={"Idempotency-Key": text}
    )


async def post_until_answered(server: Server, agent: str, text: str) -> list[int]:
    """The statuses, up to the first that is none of a failing database."""
    statuses = []
    while not statuses or statuses[-1] == 503:
        statuses.append((await post(server, agent, text)).status_code)
    return statuses


async def test_a_read_only_database_is_503_and_what_waits_is_answered_when_it_can_be_written(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("hello"), say("again")])) as server:
        agent = await server.create_agent()
        await server.say(agent, "first")
        set_read_only(database, "on")
        refused = await post(server, agent, "second")
        while refused.json()["error"]["message"] != "The database takes no writes.":
            refused = await post(server, agent, "second")
        ready = await server.http.get("/v1/ready")
        set_read_only(database, "off")
        statuses = await post_until_answered(server, agent, "second")
        states = server.rows("SELECT state FROM turns ORDER BY turn")
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "database_error"
    assert refused.headers["Retry-After"] == "1"
    assert not any(secret in refused.text for secret in SECRETS)
    assert ready.status_code == 503
    assert not any(secret in ready.text for secret in SECRETS)
    assert statuses[-1] == 200
    assert states == [("done",), ("done",)]


async def test_cut_connections_are_replaced_and_every_message_is_answered_once(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say(f"answer {n}") for n in range(6)])) as server:
        agent = await server.create_agent()
        for number in range(6):
            with superuser(database) as connection:
                end_connections(connection)
            assert (await post_until_answered(server, agent, f"m{number}"))[-1] == 200
        said = server.rows("SELECT content FROM messages ORDER BY position")
        states = server.rows("SELECT DISTINCT state FROM turns")
    expected = [part for n in range(6) for part in (f"m{n}", f"answer {n}")]
    assert [text for (text,) in said] == expected
    assert states == [("done",)]


async def test_what_the_database_cannot_hold_is_the_callers_error(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([])) as server:
        agent = await server.create_agent()
        async with server.services.database.tenant("default") as tx:
            with pytest.raises(psycopg.Error):  # the savepoint is undone, the error as it is
                async with tx.transaction():
                    await tx.execute("SELECT repeat('x', 1073741820) || 'four'")
        with pytest.raises(Exception, match="can't hold") as raised:
            async with server.services.database.tenant("default") as tx:
                await tx.execute("SELECT repeat('x', 1073741820) || 'four'")
        assert getattr(raised.value, "code", None) == "invalid_input"
        assert (await server.get(agent))["id"] == agent


@asynccontextmanager
async def held_by(server: Server, agent: str) -> AsyncIterator[None]:
    """While the server's process hangs in a transaction that holds this agent."""
    holding, let_go = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with server.services.database.tenant("default") as tx:
            await tx.execute("SELECT 1 FROM agent_state WHERE agent_id = %s FOR UPDATE", [agent])
            holding.set()
            await let_go.wait()

    hanging = asyncio.create_task(hang())
    await holding.wait()
    yield
    let_go.set()
    await asyncio.gather(hanging, return_exceptions=True)


async def test_a_hung_process_blocks_nobody_but_its_agent(database: OneDatabase) -> None:
    model = ScriptedModel([say(f"answer {n}") for n in range(13)])
    async with (
        serving(database, ScriptedModel([]), lease_seconds=60) as hung,
        serving(database, model, lease_seconds=60, database_pool_size=4) as other,
    ):
        blocked, free = await other.create_agent(), await other.create_agent()
        async with held_by(hung, blocked):
            waiting = [
                asyncio.create_task(post_until_answered(other, blocked, f"m{n}")) for n in range(12)
            ]
            beside = await post(other, free, "hello")
            answered = [each.done() for each in waiting]
        statuses = await asyncio.gather(*waiting)
    assert beside.status_code == 200
    assert not any(answered)
    assert [of_one[-1] for of_one in statuses] == [200] * 12


async def test_a_hung_process_blocks_its_agent_for_no_longer_than_its_own_lease(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "SHORTEST_IDLE", 0.5)
    model = ScriptedModel([say(f"answer {n}") for n in range(12)])
    async with (
        serving(database, ScriptedModel([]), lease_seconds=1) as hung,
        serving(database, model, lease_seconds=60, database_pool_size=4) as other,
    ):
        blocked = await other.create_agent()
        async with held_by(hung, blocked):
            statuses = await asyncio.gather(
                *[post_until_answered(other, blocked, f"m{n}") for n in range(12)]
            )
    assert [of_one[-1] for of_one in statuses] == [200] * 12


def test_first_starts_at_the_same_time_prepare_a_server_once(postgres: EmbeddedPostgres) -> None:
    at_once = 4
    for _ in range(3):
        name, barrier = f"fresh_{uuid4().hex}", Barrier(at_once)

        def start(name: str = name, barrier: Barrier = barrier) -> None:
            barrier.wait()
            prepare_embedded(postgres.url(), name)

        with ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(start) for _ in range(at_once)]:
                done.result()
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


async def test_a_turn_that_the_database_cuts_off_often_is_answered_in_the_end(
    database: OneDatabase,
) -> None:
    cuts = 8
    asked = []

    def cut_off(_prompt: object, _tools: object) -> Step:
        asked.append(len(asked))
        if len(asked) <= cuts:
            with superuser(database) as connection:
                end_connections(connection)
        return say(f"answer {len(asked)}")

    async with serving(database, ScriptedModel(cut_off), lease_seconds=1) as server:
        agent = await server.create_agent()
        statuses = await post_until_answered(server, agent, "hello")
        said = server.rows("SELECT content FROM messages ORDER BY position")
    assert statuses[-1] == 200
    assert said == [("hello",), (f"answer {cuts + 1}",)]


async def test_a_full_disk_is_seen_by_readiness_until_it_has_room(database: OneDatabase) -> None:
    full = """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE 'could not extend file "base/16386/16829"' USING ERRCODE = 'disk_full';
        END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON messages EXECUTE FUNCTION full_disk();
        CREATE TRIGGER full_disk BEFORE INSERT ON write_checks EXECUTE FUNCTION full_disk();
    """
    async with serving(database, ScriptedModel([say("hello")])) as server:
        agent = await server.create_agent()
        before = await server.http.get("/v1/ready")
        with superuser(database) as connection:
            connection.execute(full)
            refused = await post(server, agent, "hello")
            during = [await server.http.get("/v1/ready") for _ in range(2)]
            connection.execute("DROP FUNCTION full_disk CASCADE")
        after = await server.http.get("/v1/ready")
        answered = await post(server, agent, "hello")
    assert (refused.status_code, answered.status_code) == (503, 200)
    assert refused.json()["error"]["message"] == "The database takes no writes."
    assert [each.status_code for each in (before, *during, after)] == [200, 503, 503, 200]
    assert not any(secret in each.text for each in (refused, *during) for secret in SECRETS)


async def test_what_is_done_again_and_again_outlives_a_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes: list[Exception] = [RuntimeError("a bug"), DatabaseError("It is away.")]
    done = asyncio.Event()

    async def act() -> None:
        if outcomes:
            raise outcomes.pop()
        done.set()

    repeating = asyncio.create_task(repeat(act, 0))
    await asyncio.wait_for(done.wait(), 10)
    repeating.cancel()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
