"""A client that sends an old conversation whole: how long finding it in the agent's history takes.

One agent has all messages, in pairs of a question and an answer. Each request goes as one of
`/v1/chat/completions` does, as the application role in its tenant's transaction, and its conversation lies where
the newest messages don't reach. Beside it stands what it was before there was an index of the texts: the whole
history read. Where the server runs on this machine, the CPU time of its process is shown too: on a busy machine
that is the better guide.

Run it: `python -m benchmarks.known_history [--messages N] [--exchanges N] [--seed S] [--json]`.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.gpu_report import wide_console
from benchmarks.recall import server_cpu_ms
from benchmarks.recall_history import TENANT, make_agents
from memserver.agent.chats import ChatHint
from memserver.agent.transcript import WINDOW, Said, unread
from memserver.settings import Settings
from memserver.storage.database import Database, Transaction
from memserver.wiring.database import database_urls
from tests.support.servers import temporary_folder

READ = """SELECT position FROM messages
    WHERE agent_id = %s AND role IN ('user', 'assistant') AND content <> ''
      AND said_text(content) = ANY (%s) ORDER BY position"""
"""How the whole history is read for some texts."""
FILL = """INSERT INTO messages (agent_id, position, tenant, role, content, tokens)
    SELECT %(agent)s, n * 1000, %(tenant)s, CASE n %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END,
           n || ' ' || repeat(md5(n::text) || ' ', (1 + n %% 7)::int), 20
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) n"""
CHUNK = 50_000
WARM_UP = 2


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    messages: int
    exchanges: int
    requests: int
    seed: int


Find = Callable[[Transaction, UUID, list[Said]], Awaitable[object]]


async def by_index(tx: Transaction, agent: UUID, said: list[Said]) -> object:
    """As a request does."""
    return await unread(tx, agent, said, ChatHint())


async def by_reading(tx: Transaction, agent: UUID, said: list[Said]) -> object:
    """As it was done before."""
    cursor = await tx.execute(READ, [agent, [each.text for each in said]])
    return await cursor.fetchall()


def fill(owner_url: str, messages: int, console: Console) -> UUID:
    """Give an agent its history, as autovacuum would leave it; the agent."""
    with psycopg.connect(owner_url) as connection:
        [agent] = make_agents(connection, 1)
        with console.status("Storing messages"):
            for first in range(1, messages + 1, CHUNK):
                last = min(first + CHUNK - 1, messages)
                span = {"agent": agent, "tenant": TENANT, "first": first, "last": last}
                connection.execute(FILL, span)
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE messages")
    return agent


async def conversation(
    pool: Database, agent: UUID, plan: Plan, chance: random.Random
) -> list[Said]:
    """Exchanges of the history, from anywhere but its end, and something new after them."""
    length = 2 * plan.exchanges
    first = 2 * chance.randrange((plan.messages - WINDOW - length) // 2) + 1
    async with pool.tenant(TENANT) as tx:
        cursor = await tx.execute(
            """SELECT role, content FROM messages
               WHERE agent_id = %s AND position BETWEEN %s AND %s ORDER BY position""",
            [agent, first * 1000, (first + length - 1) * 1000],
        )
        known = [Said(row["role"], row["content"]) for row in await cursor.fetchall()]
    return [*known, Said("user", "Something new.")]


async def measure(app_url: str, agent: UUID, plan: Plan) -> list[dict[str, Any]]:
    """Both ways, with the same conversations."""
    pool = Database(app_url, pool_size=2)
    await pool.open()
    chance = random.Random(plan.seed)
    try:
        asked = [
            await conversation(pool, agent, plan, chance) for _ in range(plan.requests + WARM_UP)
        ]
        ways: dict[str, Find] = {"by the index": by_index, "the history read": by_reading}
        return [await _times(pool, name, find, agent, asked) for name, find in ways.items()]
    finally:
        await pool.close()


async def _times(
    pool: Database, name: str, find: Find, agent: UUID, asked: list[list[Said]]
) -> dict[str, Any]:
    took, cpu = [], []
    for said in asked:
        start = time.perf_counter()
        async with pool.tenant(TENANT) as tx:
            before = server_cpu_ms(tx.info.backend_pid)
            await find(tx, agent, said)
            after = server_cpu_ms(tx.info.backend_pid)
        took.append(1000 * (time.perf_counter() - start))
        if before is not None and after is not None:
            cpu.append(after - before)
    return {
        "way": name,
        "p50_ms": round(statistics.median(took[WARM_UP:]), 2),
        "max_ms": round(max(took[WARM_UP:]), 2),
        "cpu_p50_ms": round(statistics.median(cpu[WARM_UP:]), 2) if cpu else None,
    }


def run(plan: Plan, console: Console) -> dict[str, Any]:
    """Fill a database of its own and measure in it."""
    with (
        temporary_folder() as home,
        database_urls(Settings(_env_file=None, home=home)) as urls,
    ):
        agent = fill(urls.owner, plan.messages, console)
        ways = asyncio.run(measure(urls.app, agent, plan))
        with psycopg.connect(urls.owner) as connection:
            row = connection.execute(
                "SELECT pg_relation_size('messages'), pg_relation_size('messages_by_text')"
            ).fetchone()
    assert row is not None
    return {
        "messages": plan.messages,
        "exchanges": plan.exchanges,
        "ways": ways,
        "messages_mb": round(row[0] / 1e6, 1),
        "index_mb": round(row[1] / 1e6, 1),
    }


def table(figures: dict[str, Any]) -> Table:
    """As a person reads it."""
    title = f"{figures['exchanges']} old exchanges among {figures['messages']:,} messages"
    shown = Table("way", "p50 ms", "max ms", "server's CPU, p50 ms", title=title)
    for way in figures["ways"]:
        shown.add_row(way["way"], *(str(way[f"{name}_ms"]) for name in ("p50", "max", "cpu_p50")))
    return shown


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures how an old conversation is found again.")
    parser.add_argument("--messages", type=int, default=200_000, help="of the agent")
    parser.add_argument("--exchanges", type=int, default=20, help="of a conversation")
    parser.add_argument("--requests", type=int, default=20, help="that are measured")
    parser.add_argument("--seed", type=int, default=0, help="of what is asked")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    asked = parser.parse_args()
    if asked.messages < 1000 or asked.exchanges < 1 or asked.requests < 2:
        parser.error("--messages must be 1000 or more, --exchanges 1, --requests 2")
    console = wide_console()
    plan = Plan(asked.messages, asked.exchanges, asked.requests, asked.seed)
    figures = run(plan, console)
    console.print(table(figures))
    if asked.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
