"""Several transactions of one task as one commit."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from memserver.errors import DatabaseError
from memserver.storage import api_keys
from memserver.storage import database as module
from memserver.storage.database import Database
from memserver.storage.rows import PageQuery
from tests.support.server import OneDatabase
from tests.support.servers import wait_for


@pytest.fixture
async def opened(database: OneDatabase) -> AsyncIterator[Database]:
    pool = Database(database.app, pool_size=4)
    await pool.open()
    yield pool
    await pool.close()


async def make(database: Database, tenant: str) -> None:
    async with database.tenant(tenant) as tx:
        await api_keys.create_tenant(tx, tenant)


async def names(database: Database) -> list[str]:
    async with database.across_tenants() as tx:
        found = await api_keys.list_tenants(tx, PageQuery(100))
    return [each.tenant for each in found]


async def test_all_is_committed_together_or_not_at_all(opened: Database) -> None:
    async with opened.one_commit() as whole:
        await make(opened, "a")
        await make(opened, "b")
        seen = await names(opened)
        await whole.commit()
    async with opened.one_commit():
        await make(opened, "c")

    async def fail() -> None:
        async with opened.one_commit():
            await make(opened, "d")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert seen == ["default"]
    assert await names(opened) == ["a", "b", "default"]


async def test_a_part_that_fails_is_undone_alone(opened: Database) -> None:
    async def fail() -> None:
        async with opened.tenant("b") as tx:
            await api_keys.create_tenant(tx, "b")
            raise RuntimeError

    async with opened.one_commit() as whole:
        await make(opened, "a")
        with pytest.raises(RuntimeError):
            await fail()
        async with opened.tenant("c") as tx:
            await api_keys.create_tenant(tx, "c")
            async with opened.tenant("a") as inner:
                assert (await api_keys.get_tenant(inner, "a")).tenant == "a"
        await whole.commit()
    assert await names(opened) == ["a", "c", "default"]


async def test_each_part_sees_its_own_tenant_only(opened: Database) -> None:
    async with opened.one_commit() as whole:
        await make(opened, "a")
        async with opened.tenant("b") as tx:
            cursor = await tx.execute("SELECT tenant FROM tenants")
            assert await cursor.fetchall() == []
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                async with tx.transaction():
                    await api_keys.create_tenant(tx, "a2")
        await whole.commit()


async def test_another_task_has_transactions_of_its_own(opened: Database) -> None:
    async with opened.one_commit():
        await make(opened, "a")
        await asyncio.create_task(make(opened, "b"))
    assert await names(opened) == ["b", "default"]


async def test_what_waits_too_long_with_its_writes_is_undone(
    opened: Database, database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.1)

    def ended() -> bool:
        with psycopg.connect(database.superuser) as connection:
            busy = connection.execute(
                """SELECT 1 FROM pg_stat_activity
                   WHERE datname = current_database() AND state = 'idle in transaction'"""
            )
            return busy.fetchone() is None

    async def wait() -> None:
        async with opened.one_commit():
            await make(opened, "a")
            assert await asyncio.to_thread(wait_for, ended, 30)
            await make(opened, "b")

    with pytest.raises(DatabaseError):
        await wait()
    assert await names(opened) == ["default"]
