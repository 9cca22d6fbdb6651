"""A plain turn, from the message to its answer: what it asks of the database."""

from typing import Any

import pytest
from psycopg import AsyncCursor
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, serving

BACKGROUND = ("agents_waiting", "calls_overdue", "renew_leases")


async def test_a_plain_turn_is_seven_statements_in_three_transactions(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    execute = AsyncCursor.execute

    async def logged(self: AsyncCursor[Any], query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(str(query))
        return await execute(self, query, *args, **kwargs)

    async with serving(database, ScriptedModel([say("one"), say("two")])) as server:
        agent = await server.create_agent()
        await server.say(agent, "first")
        monkeypatch.setattr(AsyncCursor, "execute", logged)
        assert (await server.say(agent, "second"))["text"] == "two"
    turn = [query for query in sent if not any(name in query for name in BACKGROUND)]
    begun = [query for query in turn if "set_config('memserver.tenant'" in query]
    assert (len(turn), len(begun)) == (7, 3), turn
    assert max(map(len, turn)) <= MAX_CACHED_STATEMENT_LENGTH
