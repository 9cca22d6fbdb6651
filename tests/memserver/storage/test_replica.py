"""Searches run on a streaming replica, find all that was written before them, and go to the primary where it fails."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import pytest

from memserver.cli import doctor
from memserver.cli.doctor import examine_replicas
from memserver.errors import DatabaseError
from memserver.storage import replica
from memserver.storage.checks import APP_ROLE
from memserver.storage.database import Database, Transaction
from memserver.storage.migrate import OWNER_ROLE, migrations_folder
from memserver.storage.replica import ReplicatedDatabase
from memserver.storage.rows import fetch_value
from memserver.storage.upgrade import upgrade
from memserver.telemetry.metrics import Measure, Recorder
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from tests.support.postgres_pair import DATABASE, Node, Pair, postgres_pair
from tests.support.processes import DEADLINE, eventually
from tests.support.server import OneDatabase, Server, serving
from tests.support.servers import temporary_folder, wait_for

IN_RECOVERY = "SELECT pg_is_in_recovery()"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with temporary_folder() as folder, postgres_pair(folder) as both:
        both.primary.set("synchronous_standby_names", "")
        upgrade(both.primary.conninfo(OWNER_ROLE, DATABASE), migrations_folder())
        with both.primary.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE other TEMPLATE {DATABASE}".encode())
            connection.execute("CREATE ROLE stranger LOGIN")
        assert wait_for(lambda: has_stranger(both.standby), DEADLINE)
        yield both


def has_stranger(node: Node) -> bool:
    with node.connect() as connection:
        query = "SELECT count(*) FROM pg_roles WHERE rolname = 'stranger'"
        return connection.execute(query).fetchone() == (1,)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(replica, "BEHIND_SECONDS", 5.0)


class Outcomes(Recorder):
    """Notes how reads with a replica went."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def record(self, measure: Measure, value: float, *labels: str) -> None:
        if measure is replica.REPLICA:
            self.noted += labels


@asynccontextmanager
async def opened(
    pair: Pair, role: str = APP_ROLE, database_name: str = DATABASE
) -> AsyncIterator[tuple[Database, Outcomes]]:
    outcomes = Outcomes()
    urls = pair.primary.conninfo(APP_ROLE, DATABASE), pair.standby.conninfo(role, database_name)
    options: Any = {"pool_size": 2, "limits": replica.TransactionLimits(), "prepared": "auto"}
    database = ReplicatedDatabase(*urls, outcomes, **options)
    await database.open()
    try:
        yield database, outcomes
    finally:
        await database.close()


@asynccontextmanager
async def served(pair: Pair, script: Sequence[Step] = ()) -> AsyncIterator[Server]:
    """A server that searches on the standby, once it is connected to it."""
    of = pair.primary.conninfo
    database = OneDatabase(*(of(role, DATABASE) for role in (APP_ROLE, OWNER_ROLE, "postgres")))
    settings = {
        "database_app_url": database.app,
        "database_read_url": pair.standby.conninfo(APP_ROLE, DATABASE),
    }
    async with serving(database, ScriptedModel(script), **settings) as server:
        await until_on_replica(server.services.database)
        yield server


async def until_on_replica(database: Database) -> None:
    while not await database.read("default", in_recovery):
        pass


async def in_recovery(tx: Transaction) -> bool:
    return bool(await fetch_value(tx, IN_RECOVERY))


@contextmanager
def nothing_replayed(standby: Node) -> Iterator[None]:
    with standby.connect() as connection:
        connection.execute("SELECT pg_wal_replay_pause()")
        try:
            yield
        finally:
            connection.execute("SELECT pg_wal_replay_resume()")


async def searches(server: Server) -> dict[str, float]:
    """How many reads ended how."""
    text = (await server.http.get("/metrics")).text
    counted = [
        line
        for line in text.splitlines()
        if line.startswith("memserver_replica_duration_seconds_c")
    ]
    return {line.split('"')[1]: float(line.split()[-1]) for line in counted}


async def insert(server: Server, agent: str, text: str) -> None:
    body = {"passages": [{"text": text}]}
    answer = await server.http.post(f"/v1/agents/{agent}/archival", json=body)
    assert answer.status_code == 201, answer.text


async def found(server: Server, agent: str, what: str, query: str) -> list[str]:
    answer = await server.get(f"{agent}/{what}/search", query=query)
    return [each.get("text") or each["passage"]["text"] for each in answer["items"]]


async def test_every_search_runs_on_the_replica_and_finds_what_was_just_written(
    pair: Pair,
) -> None:
    again = {"request_heartbeat": True}
    script = [
        Call("archival_memory_insert", {"content": "Hugo is a cello.", **again}),
        Call("archival_memory_search", {"query": "cello", **again}),
        Call("recall_memory_search", {"query": "nothing", **again}),
        say("noted"),
    ]
    async with served(pair, script) as server:
        agent = await server.create_agent()
        before = await searches(server)
        said = await server.say(agent, "Hugo is my cello.")
        by_tools = await searches(server)
        recalled = await found(server, agent, "recall", "Hugo is my cello")
        kept = await found(server, agent, "archival", "cello")
        by_requests = await searches(server)
    assert "Hugo is a cello." in said["messages"][1]["tool_call"]["result"]
    assert (recalled[0], kept) == ("Hugo is my cello.", ["Hugo is a cello."])
    assert by_tools["done"] - before["done"] == 2
    assert by_requests["done"] - by_tools["done"] == 3  # one looks whether there is the agent
    assert by_requests.keys() - before.keys() == set()


async def test_what_the_replica_has_not_replayed_yet_is_found_on_the_primary(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "BEHIND_SECONDS", 0.0)
    async with served(pair) as server:
        agent = await server.create_agent()
        with nothing_replayed(pair.standby):
            await insert(server, agent, "The heron stands in the reeds.")
            there = await found(server, agent, "archival", "heron")
        counted = await searches(server)
        await until_on_replica(server.services.database)
    assert there == ["The heron stands in the reeds."]
    assert counted["behind"] >= 1


async def test_a_replica_that_soon_has_it_is_waited_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = asyncio.Event()

    async def fetch(tx: Transaction, query: str, *parameters: Any) -> object:
        value = await fetch_value(tx, query, *parameters)
        if query == replica.REACHES and not value:
            behind.set()
        return value

    async with opened(pair) as (database, outcomes):
        await until_on_replica(database)
        monkeypatch.setattr(replica, "fetch_value", fetch)
        with nothing_replayed(pair.standby):
            async with database.tenant("default") as tx:
                await tx.execute("SELECT pg_logical_emit_message(true, 'a test', 'a write')")
            reading = asyncio.create_task(database.read("default", in_recovery))
            await behind.wait()
        assert await reading
    assert outcomes.noted[-1] == "done"


async def test_a_search_that_the_replica_cancels_for_its_replay_runs_on_the_primary(
    pair: Pair,
) -> None:
    pair.standby.set("max_standby_streaming_delay", "0")
    ran: list[bool] = []

    async def search(tx: Transaction) -> int:
        ran.append(await in_recovery(tx))
        await tx.execute("SELECT 1 FROM agents LIMIT 1")
        if ran == [True]:
            with pair.primary.connect() as connection, connection.transaction():
                connection.execute("LOCK TABLE agents IN ACCESS EXCLUSIVE MODE")
            while True:  # until it is cancelled
                await tx.execute("SELECT 1 FROM agents LIMIT 1")
        return 7

    try:
        async with opened(pair) as (database, outcomes):
            await until_on_replica(database)
            assert await database.read("default", search) == 7
            await until_on_replica(database)
    finally:
        pair.standby.set("max_standby_streaming_delay", "30s")
    assert ran == [True, False]
    assert "failed" in outcomes.noted


async def test_a_replica_that_dies_is_replaced_by_the_primary_and_used_again_when_it_is_back(
    pair: Pair,
) -> None:
    async with served(pair) as server:
        agent = await server.create_agent()
        await insert(server, agent, "The kettle sings.")
        pair.standby.kill()
        try:
            first = await found(server, agent, "archival", "kettle")
            second = await found(server, agent, "archival", "kettle")
            counted = await searches(server)
        finally:
            await asyncio.to_thread(pair.standby.start)
        await until_on_replica(server.services.database)
    assert first == second == ["The kettle sings."]
    assert counted["failed"] >= 1


async def test_a_server_starts_without_its_replica(pair: Pair) -> None:
    await asyncio.to_thread(pair.standby.kill)
    try:
        async with opened(pair) as (database, outcomes):
            assert not await database.read("default", in_recovery)
            await asyncio.to_thread(pair.standby.start)
            await until_on_replica(database)
    finally:
        if not pair.standby.runs:
            pair.standby.start()
    assert (outcomes.noted[0], outcomes.noted[-1]) == ("away", "done")


async def test_on_the_replica_a_tenant_sees_only_what_is_its_own(pair: Pair) -> None:
    async def agents(tx: Transaction) -> tuple[bool, int]:
        count = await fetch_value(tx, "SELECT count(*) FROM agents WHERE id = %s", [agent])
        return await in_recovery(tx), count

    async with served(pair) as server:
        agent = UUID(await server.create_agent())
        database = server.services.database
        assert await database.read("default", agents) == (True, 1)
        assert await database.read("another", agents) == (True, 0)


@pytest.mark.parametrize(
    ("role", "name", "identity", "why"),
    [
        ("postgres", DATABASE, None, "row-level security"),
        (APP_ROLE, DATABASE, "SELECT random()", "another database"),  # as of another cluster
        (APP_ROLE, "other", None, "another database"),
    ],
)
async def test_a_replica_that_would_show_what_is_not_the_tenants_is_never_used(
    pair: Pair,
    role: str,
    name: str,
    identity: str | None,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(replica, "IDENTITY", identity or replica.IDENTITY)
    with caplog.at_level(logging.WARNING):
        async with opened(pair, role, name) as (database, outcomes):
            await eventually(lambda: why in caplog.text)
            assert not await database.read("default", in_recovery)
    assert outcomes.noted == ["away"]


async def test_what_only_reads_cannot_write_with_or_without_a_replica(pair: Pair) -> None:
    async def write(tx: Transaction) -> None:
        await tx.execute("UPDATE agents SET name = name")

    async with opened(pair) as (database, _):
        await until_on_replica(database)
        with pytest.raises(DatabaseError):
            await database.read("default", write)
    alone = Database(pair.primary.conninfo(APP_ROLE, DATABASE), pool_size=2)
    await alone.open()
    with pytest.raises(DatabaseError):
        await alone.read("default", write)
    await alone.close()


async def test_of_one_commit_a_read_sees_what_nobody_else_does(pair: Pair) -> None:
    async def current(tx: Transaction) -> str:
        found = await fetch_value(tx, "SELECT pg_current_xact_id_if_assigned()::text")
        return str(found)

    async with opened(pair) as (database, outcomes):
        await until_on_replica(database)
        outcomes.noted.clear()
        async with database.one_commit():
            async with database.tenant("default") as tx:
                written = await fetch_value(tx, "SELECT pg_current_xact_id()::text")
            assert await database.read("default", current) == written
    assert not outcomes.noted


@pytest.mark.parametrize("feedback", ["on", "off"])
def test_the_doctor_says_how_far_each_replica_is_after_the_primary(
    pair: Pair, feedback: str
) -> None:
    pair.standby.set("hot_standby_feedback", feedback)
    primary, standby = examine_replicas(
        pair.primary.conninfo(APP_ROLE, DATABASE), pair.url(APP_ROLE)
    )
    assert (standby.name, standby.well) == (f"replica 127.0.0.1:{pair.standby.port}", True)
    assert (primary.name, primary.well) == (f"replica 127.0.0.1:{pair.primary.port}", True)
    assert re.match(r"a standby, \d\.\d\d s after the primary", standby.detail)
    assert ("hot_standby_feedback" in standby.detail) == (feedback == "off")
    assert "takes writes" in primary.detail


@pytest.mark.parametrize(
    ("server", "role", "database", "problem", "remedy"),
    [
        ("primary", APP_ROLE, DATABASE, "no standby", "streaming standby"),
        ("standby", APP_ROLE, "other", "another database", "the same database"),
        ("standby", "postgres", DATABASE, "postgres is not bound", "DATABASE_APP_URL"),
        (
            "standby",
            "stranger",
            DATABASE,
            "stranger is no member of memserver_app",
            "DATABASE_APP_URL",
        ),
        ("standby", "nobody:secret", DATABASE, "can't be reached", "that the standby runs"),
    ],
)
def test_the_doctor_says_why_searches_do_not_run_on_a_replica(
    pair: Pair, server: str, role: str, database: str, problem: str, remedy: str
) -> None:
    url = getattr(pair, server).conninfo(role, database)
    [found] = examine_replicas(pair.primary.conninfo(APP_ROLE, DATABASE), url)
    assert not found.well
    assert problem in found.detail
    assert remedy in found.remedy
    assert "secret" not in found.detail


def test_the_doctor_says_what_a_replica_lacks_that_replays_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "REPLICA_SECONDS", 0.0)
    app = pair.primary.conninfo(APP_ROLE, DATABASE)
    with nothing_replayed(pair.standby), pair.primary.connect() as connection:
        connection.execute("SELECT pg_logical_emit_message(true, 'a test', repeat('x', 5000))")
        [found] = examine_replicas(app, pair.standby.conninfo(APP_ROLE, DATABASE))
    assert not found.well
    assert re.search(r"lacks \d+,\d{3} bytes", found.detail)
    assert "pg_is_wal_replay_paused" in found.remedy
