"""Rows are locked in one order, so that two transactions never wait for each other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from memserver.llm.scripted import ScriptedModel, say
from memserver.storage import leases
from tests.support import OneDatabase, Server, serving


@contextmanager
def holding(database: OneDatabase, query: str, *parameters: Any) -> Iterator[psycopg.Connection]:
    """A transaction of somebody else, who holds what the query locks until the block ends."""
    with psycopg.connect(database.superuser) as connection:
        connection.execute(query.encode(), parameters)
        yield connection


async def blocked(server: Server, count: int) -> None:
    """Wait until so many statements wait for a lock."""
    query = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    while server.rows(query) != [(count,)]:
        await asyncio.to_thread(lambda: None)


@asynccontextmanager
async def two_agents(database: OneDatabase) -> AsyncIterator[tuple[Server, str, str]]:
    """A server with two agents whose rows lie in another order than their ids, and no index is used."""
    with psycopg.connect(database.superuser) as connection:
        name = sql.Identifier(connection.info.dbname)
        for plan in ("enable_indexscan", "enable_bitmapscan"):
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET {} = off").format(name, sql.Identifier(plan))
            )
    async with serving(database, ScriptedModel([say("hi")] * 4)) as server:
        one, two = await server.create_agent(), await server.create_agent()
        await server.say(one, "hello")
        assert one < two
        places = server.rows("SELECT agent_id::text FROM agent_state ORDER BY ctid")
        assert places == [(two,), (one,)]
        yield server, one, two


async def test_the_first_passages_of_two_agents_may_come_at_once(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        urls = [f"/v1/agents/{await server.create_agent()}/archival" for _ in range(2)]
        new = {"passages": [{"text": "a note"}]}
        with holding(database, "SELECT 1 FROM collections FOR UPDATE"):
            posts = [asyncio.create_task(server.http.post(url, json=new)) for url in urls]
            await blocked(server, 2)
        answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers] == [201, 201]


async def test_an_agent_may_be_deleted_while_a_message_comes_in(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("hi")])) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}"
        with holding(database, "SELECT 1 FROM agent_state FOR UPDATE"):
            post = asyncio.create_task(
                server.http.post(f"{url}/messages/import?wait=false", json={"messages": PAST})
            )
            await blocked(server, 1)
            delete = asyncio.create_task(server.http.delete(url))
            await blocked(server, 2)
        assert (await post).status_code == 202
        assert (await delete).status_code == 204
        assert server.rows("SELECT 1 FROM messages") == []


PAST = [{"role": "user", "text": "hello"}]


@pytest.mark.parametrize("what", ["renewal"])
async def test_rows_of_several_agents_are_locked_in_the_order_of_their_ids(
    database: OneDatabase, what: str
) -> None:
    lock = "SELECT 1 FROM agent_state WHERE agent_id = %s FOR UPDATE"
    async with two_agents(database) as (server, one, two):
        server.rows("UPDATE agent_state SET lease_owner = 'somebody' RETURNING 1")
        with holding(database, lock, one) as connection:
            task = asyncio.create_task(LOCKERS[what](server, one, two))
            await blocked(server, 1)
            connection.execute(f"{lock} NOWAIT", [two])
        await task


async def renew(server: Server, one: str, two: str) -> None:
    async with server.services.database.across_tenants() as tx:
        renewed = await leases.renew(tx, "somebody", [UUID(two), UUID(one)], 60)
    assert renewed == {UUID(one), UUID(two)}


LOCKERS = {"renewal": renew}
