"""A statement that takes long is waited for as long as the server answers anybody, and no longer than it may take."""

from collections.abc import AsyncIterator

import pytest

from memserver.errors import DatabaseError
from memserver.storage import watched
from memserver.storage.database import Database
from memserver.storage.watched import Pulse, allow_long_statements
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
