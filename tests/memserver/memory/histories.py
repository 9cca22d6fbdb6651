"""A long conversation, written into the history, and what is found in it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.support.server import Server

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def remember(
    server: Server, agent: str, texts: Sequence[str], *, first: int = 1, analyze: bool = True
) -> None:
    """Put messages into the history, a minute apart, as a long conversation would have left them.

    `first`: the turn of the first one. `analyze`: have statistics of them, as autovacuum will have made in time.
    """
    rows = [
        (agent, 1000 * number, "user" if number % 2 else "assistant", text)
        for number, text in enumerate(texts, start=first)
    ]
    with psycopg.connect(server.database.owner) as connection:
        connection.cursor().executemany(
            """INSERT INTO messages (agent_id, position, tenant, role, content, tokens, created_at)
               VALUES (%s, %s, 'default', %s, %s, 1, %s)""",
            [(*row, BEGIN + timedelta(minutes=row[1] // 1000)) for row in rows],
        )
        connection.execute(
            """UPDATE agent_state SET next_turn = %(turns)s + 1, done_turn = %(turns)s,
                   queue_start = (%(turns)s + 1) * 1000, message_count = %(turns)s
               WHERE agent_id = %(agent)s""",
            {"turns": first - 1 + len(texts), "agent": agent},
        )
    if analyze:
        with psycopg.connect(server.database.owner, autocommit=True) as connection:
            connection.execute("ANALYZE messages")


async def find(server: Server, agent: str, **query: Any) -> dict[str, Any]:
    return await server.get(f"{agent}/recall/search", **{"mode": "exact"} | query)


async def texts(server: Server, agent: str, **query: Any) -> list[str]:
    return [item["text"] for item in (await find(server, agent, **query))["items"]]


async def remember_indexed(
    server: Server, agent: str, texts: Sequence[str], share: float = 1.0
) -> None:
    """The same, a share of them indexed, which jobs do in time; the rest has just been said."""
    indexed = round(len(texts) * share)
    if indexed:
        remember(server, agent, texts[:indexed])
        await server.run_jobs()
    if indexed < len(texts):
        remember(server, agent, texts[indexed:], first=indexed + 1)
