"""PgBouncer between memserver and Postgres: in transaction mode, and when it loses its connections."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from memserver.cli.doctor import examine_database
from memserver.storage.watched import WatchedConnection
from memserver.testing.scripted import ScriptedModel, say
from tests.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.support.server import OneDatabase, Server, serving
from tests.support.servers import temporary_folder

pytestmark = needs_pgbouncer

AGENTS = 6
MESSAGES = 5


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as made:
        yield made


@contextmanager
def superuser(database: OneDatabase) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        yield connection


def lose_all_connections(database: OneDatabase) -> None:
    with superuser(database) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def post_until_stored(server: Server, agent: str, text: str) -> list[int]:
    """The statuses of a keyed message, up to the first that is none of a failing database."""
    statuses: list[int] = []
    while not statuses or statuses[-1] == 503:
        answer = await server.http.post(
            f"/v1/agents/{agent}/messages", json={"text": text}, headers={"Idempotency-Key": text}
        )
        statuses.append(answer.status_code)
    return statuses


async def talk(server: Server, agent: str) -> list[int]:
    return [
        status
        for number in range(MESSAGES)
        for status in await post_until_stored(server, agent, f"m{number}")
    ]


def assert_all_answered_once(server: Server) -> None:
    total = AGENTS * MESSAGES
    assert server.rows("SELECT state, count(*) FROM turns GROUP BY state") == [("done", total)]
    said = server.rows("SELECT role, count(*) FROM messages GROUP BY role ORDER BY role")
    assert said == [("assistant", total), ("user", total)]


async def test_all_is_answered_through_a_pooler_in_transaction_mode(
    database: OneDatabase, folder: Path
) -> None:
    model = ScriptedModel([say(f"answer {n}") for n in range(AGENTS * MESSAGES)])
    with pgbouncer(folder, database, "transaction") as pooled:
        async with serving(pooled, model, jobs_at_once=1) as server:
            agents = [await server.create_agent() for _ in range(AGENTS)]
            statuses = await asyncio.gather(*(talk(server, agent) for agent in agents))
            assert_all_answered_once(server)
    assert statuses == [[200] * MESSAGES] * AGENTS


async def test_a_pooler_that_loses_its_connections_fails_no_turn(
    database: OneDatabase, folder: Path
) -> None:
    model = ScriptedModel([say(f"answer {n}") for n in range(5 * AGENTS * MESSAGES)])
    with pgbouncer(folder, database, "session", size=20) as pooled:
        async with serving(pooled, model) as server:
            agents = [await server.create_agent() for _ in range(AGENTS)]
            statuses: set[int] = set()
            for number in range(MESSAGES):
                posting = [post_until_stored(server, agent, f"m{number}") for agent in agents]
                # Never by the clock: on a slow machine, too, the others get on between two losses.
                for answered, answer in enumerate(asyncio.as_completed(posting)):
                    statuses |= set(await answer)
                    if answered == 1:
                        lose_all_connections(database)
            assert_all_answered_once(server)
    assert statuses <= {200, 503}


async def test_prepared_statements_that_the_pooler_does_not_know_fail_no_turn(
    database: OneDatabase, folder: Path
) -> None:
    """A setting that is wrong for it: requests fail as those that may be repeated, and nothing is lost."""
    model = ScriptedModel([say(f"answer {n}") for n in range(5 * AGENTS * MESSAGES)])
    with pgbouncer(folder, database, "transaction") as pooled:
        async with serving(pooled, model, database_prepared_statements="on") as server:
            agents = [await server.create_agent() for _ in range(AGENTS)]
            async with asyncio.timeout(30):
                talking = await asyncio.gather(*(talk(server, agent) for agent in agents))
            assert_all_answered_once(server)
    assert {status for each in talking for status in each} <= {200, 503}


async def test_no_two_connections_give_a_prepared_statement_the_same_name(
    database: OneDatabase,
) -> None:
    """Else a pooler that doesn't know them runs one connection's statement for another's."""
    names = []
    for _ in range(2):
        async with await WatchedConnection.connect(database.app) as connection:
            for text in ("SELECT 1", "SELECT 2"):
                await connection.execute(text, prepare=True)
            found = await connection.execute("SELECT name FROM pg_prepared_statements")
            names += [row["name"] for row in await found.fetchall()]
    assert len(set(names)) == len(names) == 4


def test_the_doctor_names_a_pooler(database: OneDatabase, folder: Path) -> None:
    with pgbouncer(folder, database, "transaction") as pooled:
        found = examine_database(pooled.owner, pooled.app)[0]
    assert found.well
    assert found.detail.endswith("through a pooler, without prepared statements")
    assert "pooler" not in examine_database(database.owner, database.app)[0].detail
