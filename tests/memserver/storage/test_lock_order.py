"""Rows are locked in one order, so that two transactions never wait for each other."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from memserver.memory.message_index import MessageIndexing
from memserver.storage import leases
from memserver.storage.jobs import JobRun
from memserver.testing.scripted import ScriptedModel, say
from tests.support.picture_files import data_url, png
from tests.support.server import OneDatabase, Server, serving

Action = Callable[[Server, list[UUID], str], Coroutine[Any, Any, None]]


@contextmanager
def holding(database: OneDatabase, query: str, *parameters: Any) -> Iterator[psycopg.Connection]:
    """A transaction of somebody else, who holds what the query locks until the block ends."""
    with psycopg.connect(database.superuser) as connection:
        connection.execute(query.encode(), parameters)
        yield connection


async def blocked(server: Server, count: int) -> None:
    """Wait until so many statements wait for a lock, or more: the server's own work may be among them."""
    query = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    while server.rows(query)[0][0] < count:
        await asyncio.to_thread(lambda: None)


@asynccontextmanager
async def two_readers(database: OneDatabase) -> AsyncIterator[tuple[Server, list[UUID], str]]:
    """A server with two agents, by their ids, and the address of a section that both have.

    Their rows lie in another order than their ids, and no index helps to find them in order.
    """
    with psycopg.connect(database.superuser) as connection:
        name = sql.Identifier(connection.info.dbname)
        for plan in ("enable_indexscan", "enable_bitmapscan"):
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET {} = off").format(name, sql.Identifier(plan))
            )
    async with serving(database, ScriptedModel()) as server:
        agents = [UUID(await server.create_agent()) for _ in range(2)]
        made = (await server.http.post("/v1/sections", json={"name": "team"})).json()
        for agent in reversed(agents):
            url = f"/v1/agents/{agent}/working-context/team"
            await server.http.put(url, json={"section_id": made["id"]})
        assert agents == sorted(agents)
        places = server.rows("SELECT agent_id FROM agent_state ORDER BY ctid")
        assert places == [(agent,) for agent in reversed(agents)]
        yield server, agents, f"/v1/sections/{made['id']}"


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
    async with serving(database, ScriptedModel()) as server:
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


async def test_an_agent_may_be_deleted_while_its_messages_are_indexed(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("one"), say("two")])) as server:
        agent = await server.create_agent()
        indexing = MessageIndexing(server.services.database, server.services.archival)
        await server.say(agent, "hello")
        await indexing.run(JOB)
        await server.say(agent, "hello again")
        with holding(database, "SELECT 1 FROM recall_embeddings FOR UPDATE"):
            job = asyncio.create_task(indexing.run(JOB))
            await blocked(server, 1)
            delete = asyncio.create_task(server.http.delete(f"/v1/agents/{agent}"))
            await blocked(server, 2)
        await job
        assert (await delete).status_code == 204


JOB = JobRun("default", {}, 1, last=False)
PAST = [{"role": "user", "text": "hello"}]


async def renewal(server: Server, agents: list[UUID], _: str) -> None:
    async with server.services.database.across_tenants() as tx:
        renewed = await leases.renew(tx, "somebody", agents[::-1], 60)
    assert renewed == set(agents)


async def edit(server: Server, _: list[UUID], section: str) -> None:
    assert (await server.http.patch(section, json={"text": "new"})).status_code == 200


@pytest.mark.parametrize("action", [renewal, edit])
async def test_rows_of_several_agents_are_locked_in_the_order_of_their_ids(
    database: OneDatabase, action: Action
) -> None:
    lock = "SELECT 1 FROM agent_state WHERE agent_id = %s FOR UPDATE"
    async with two_readers(database) as (server, agents, section):
        server.rows("UPDATE agent_state SET lease_owner = 'somebody' RETURNING 1")
        with holding(database, lock, agents[0]) as connection:
            task = asyncio.create_task(action(server, agents, section))
            await blocked(server, 1)
            connection.execute(f"{lock} NOWAIT", [agents[1]])
        await task


async def test_an_edit_that_waited_counts_what_came_meanwhile(database: OneDatabase) -> None:
    async with two_readers(database) as (server, agents, section):
        more = "UPDATE agent_state SET message_count = message_count + 5 WHERE agent_id = %s"
        with holding(database, more, agents[0]):
            task = asyncio.create_task(edit(server, agents, section))
            await blocked(server, 1)
        await task
        counts = server.rows("SELECT stats_messages FROM agent_state ORDER BY agent_id")
    assert counts == [(5,), (0,)]


async def test_an_edit_that_waited_while_the_section_was_taken_away_changes_nothing(
    database: OneDatabase,
) -> None:
    async with two_readers(database) as (server, agents, section):
        url = f"/v1/agents/{agents[0]}/working-context/team"
        with holding(database, "SELECT 1 FROM sections FOR UPDATE") as connection:
            patch = asyncio.create_task(server.http.patch(url, json={"text": "late"}))
            await blocked(server, 1)
            connection.execute("DELETE FROM agent_sections WHERE agent_id = %s", [agents[0]])
        answer = await patch
        text = (await server.http.get(section)).json()["text"]
    assert (answer.status_code, text) == (404, "")


async def test_a_picture_is_locked_after_the_agent_that_is_shown_it(database: OneDatabase) -> None:
    body = {"text": "Look", "pictures": [{"url": data_url(png())}]}
    async with serving(database, ScriptedModel([say("one"), say("two")])) as server:
        agent = await server.create_agent()
        post = f"/v1/agents/{agent}/messages"
        assert (await server.http.post(post, json=body)).status_code == 200
        with holding(database, "SELECT 1 FROM agent_state FOR UPDATE") as deleting:
            said = asyncio.create_task(server.http.post(post, json=body))
            await blocked(server, 1)
            deleting.execute("SELECT 1 FROM pictures FOR UPDATE NOWAIT")
        assert (await said).status_code == 200
