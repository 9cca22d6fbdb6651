"""A statement that takes long is waited for as long as the server answers anybody, and no longer than it may take."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memserver.errors import DatabaseError
from memserver.storage import database as database_module
from memserver.storage import watched
from memserver.storage.database import Database
from memserver.storage.watched import Pulse, Pulses, allow_long_statements
from tests.support.server import OneDatabase


@pytest.fixture
async def opened(database: OneDatabase, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    monkeypatch.setattr(watched, "QUIET_SECONDS", 0.7)
    opened = Database(database.app, pool_size=2)
    await opened.open()
    yield opened
    await opened.close()


async def sleep(database: Database) -> None:
    async with database.across_tenants() as tx:
        await tx.execute("SELECT pg_sleep(1.6)")


async def test_a_long_statement_of_a_server_that_answers_is_waited_for(opened: Database) -> None:
    await sleep(opened)


async def test_a_statement_is_given_up_when_the_server_answers_nobody(
    opened: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: Pulse) -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(Pulse, "_ask", silent)
        with pytest.raises(DatabaseError, match="can't be reached"):
            await sleep(opened)
    await sleep(opened)


async def test_a_statement_has_a_longest_time_unless_it_takes_its_time(
    opened: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "LONGEST_SECONDS", 1.0)
    with pytest.raises(DatabaseError):
        await sleep(opened)
    with allow_long_statements():
        await sleep(opened)


async def test_an_answer_of_another_server_that_the_url_names_says_nothing(
    opened: Database, database: OneDatabase
) -> None:
    host = str(conninfo_to_dict(database.app)["host"])
    pulses = Pulses(make_conninfo(database.app, host=f"/nowhere,{host}"))
    async with opened.across_tenants() as tx:
        assert await pulses.of(tx).beats()
        gone = SimpleNamespace(info=SimpleNamespace(host="/nowhere", port=1, hostaddr=""))
        assert not await pulses.of(cast("AsyncConnection[Any]", gone)).beats()


async def test_one_failed_write_lets_go_of_all_connections_that_take_none(opened: Database) -> None:
    async with opened.across_tenants() as one, opened.across_tenants() as other:
        for tx in (one, other):
            await tx.execute("SET default_transaction_read_only = on")
    with pytest.raises(DatabaseError, match="takes no writes"):
        async with opened.across_tenants() as tx:
            await tx.execute("SELECT check_writes()")
    assert opened._weeding is not None
    await opened._weeding
    async with opened.across_tenants() as one, opened.across_tenants() as other:
        for tx in (one, other):
            cursor = await tx.execute("SHOW transaction_read_only")
            assert await cursor.fetchone() == {"transaction_read_only": "off"}


async def test_listening_ends_when_the_server_takes_no_writes_any_more(
    opened: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "LISTENING_CHECKED_SECONDS", 0.1)
    reading = "-c default_transaction_read_only=on"
    opened.url = make_conninfo(opened.url, options=reading)
    with pytest.raises(DatabaseError, match="takes no writes"):
        async for _ in opened.listen("anything"):
            pass
