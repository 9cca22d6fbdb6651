"""What indexing a message costs: CPU of the server's process and of Postgres, without the embedder's.

Histories of equal length are written as an import leaves them, without statistics, and indexed by the job in
batches, as it does in a server. Wall-clock time says nothing on a busy machine, so it isn't shown.

Run it: `python -m benchmarks.recall_indexing [--messages N] [--agents N ...] [--seed S]`; it prints JSON.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
from typing_extensions import override

from benchmarks.recall import server_cpu_ms
from benchmarks.recall_history import BEGIN, TENANT, Speaker, make_agents
from memserver.embeddings.base import Vector
from memserver.memory.archival import ArchivalStorage
from memserver.memory.language import detect
from memserver.memory.message_index import MessageIndexing
from memserver.settings import Settings
from memserver.storage.database import Database
from memserver.storage.jobs import JobRun
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.wiring.database import DatabaseUrls, database_urls
from tests.support.servers import temporary_folder


class Timed(HashingEmbedder):
    """Counts the CPU time that it takes itself."""

    spent = 0.0

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        before = time.process_time()
        vectors = await super().embed(texts)
        self.spent += time.process_time() - before
        return vectors


async def cost_of_indexing(
    urls: DatabaseUrls, messages: int, agents: int, seed: int
) -> dict[str, Any]:
    """Milliseconds of CPU for each of so many messages, of so many agents, in an empty database."""
    _write(urls.owner, messages // agents, agents, seed)
    detect(["The first one loads the model."])
    embedder = Timed(384)
    pool = Database(urls.app, pool_size=2)
    await pool.open()
    try:
        job = MessageIndexing(pool, ArchivalStorage(embedder))
        python, postgres = time.process_time(), _postgres_ms(urls.owner)
        while _waiting(urls.owner):
            await job.run(JobRun(TENANT, {}, 1, last=False))
        python = 1000 * (time.process_time() - python - embedder.spent)
        postgres = _postgres_ms(urls.owner) - postgres
    finally:
        await pool.close()
    return {
        "messages": messages,
        "agents": agents,
        "python_ms": round(python / messages, 3),
        "postgres_ms": round(postgres / messages, 3),
        "cpu_ms": round((python + postgres) / messages, 3),
    }


def _write(owner_url: str, each: int, agents: int, seed: int) -> None:
    speaker = Speaker(seed)
    with psycopg.connect(owner_url) as connection:
        made = make_agents(connection, agents)
        with connection.cursor().copy(
            """COPY messages (agent_id, position, tenant, role, content, tokens, created_at)
               FROM STDIN"""
        ) as copy:
            for number in range(1, each + 1):
                role, at = "user" if number % 2 else "assistant", timedelta(minutes=number)
                for agent in made:
                    copy.write_row(
                        (agent, number * 1000, TENANT, role, speaker.message(), 20, BEGIN + at)
                    )
        connection.execute(
            "UPDATE agent_state SET done_turn = %(n)s, next_turn = %(n)s + 1", {"n": each}
        )


def _waiting(owner_url: str) -> bool:
    with psycopg.connect(owner_url) as connection:
        return bool(
            connection.execute("SELECT 1 FROM recall_index WHERE waiting LIMIT 1").fetchone()
        )


def _postgres_ms(owner_url: str) -> float:
    """Of the connections of the application that are open."""
    with psycopg.connect(owner_url) as connection:
        pids = connection.execute(
            """SELECT pid FROM pg_stat_activity
               WHERE datname = current_database() AND usename <> current_user"""
        ).fetchall()
    return sum(server_cpu_ms(pid) or 0 for (pid,) in pids)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 400])
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for agents in asked.agents:
        with (
            temporary_folder() as home,
            database_urls(Settings(_env_file=None, home=home)) as urls,
        ):
            found = asyncio.run(cost_of_indexing(urls, asked.messages, agents, asked.seed))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
