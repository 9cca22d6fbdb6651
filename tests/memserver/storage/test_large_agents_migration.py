"""Messages that had vectors before only large agents' were indexed are found as before, during the change too."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.memory import message_index
from memserver.memory.archival import ArchivalStorage
from memserver.memory.message_index import JOB, MessageIndexing
from memserver.storage.database import Database
from memserver.storage.jobs import JobRun
from memserver.storage.message_vectors import LARGE, find_embedded
from memserver.storage.migrate import APP_ROLE, OWNER_ROLE, prepare_embedded
from memserver.storage.nearest_messages import nearest
from memserver.storage.recall import RecallQuery
from memserver.testing.hashing_embedder import HashingEmbedder
from tests.support.migrating import upgrade

VECTORS = 300
MESSAGES = {"large": LARGE + 1, "small": LARGE}
"""What is noted: of so many as VECTORS alone there are rows."""
MODEL = ("hashing", 3)

AGENT = """
INSERT INTO collections (id, tenant, name, embedding_model, dimension, vectors_table)
    VALUES (%(agent)s, 'mine', %(name)s, 'm', 3, 'none');
INSERT INTO agents (id, tenant, name, collection_id) VALUES (%(agent)s, 'mine', %(name)s, %(agent)s);
INSERT INTO agent_state (agent_id, tenant, done_turn) VALUES (%(agent)s, 'mine', %(vectors)s);
INSERT INTO recall_index (agent_id, tenant, waiting, indexed_to)
    VALUES (%(agent)s, 'mine', false, (%(vectors)s + 1) * 1000)
    ON CONFLICT (agent_id) DO UPDATE SET waiting = false, indexed_to = excluded.indexed_to;
INSERT INTO recall_embeddings (agent_id, model, dimension, tenant, table_name, embedded_to, messages)
    SELECT %(agent)s, 'hashing', 3, 'mine', t, (%(vectors)s + 1) * 1000, %(messages)s
    FROM message_vectors_table('hashing', 3) t;
"""
ROWS = """
INSERT INTO {} (agent_id, position, part, tenant, embedding)
SELECT %(agent)s, n * 1000, 0, 'mine', ARRAY[cos(n), sin(n), n / 5000.0]::real[]::vector::halfvec
FROM generate_series(1, %(vectors)s) n
"""


@contextmanager
def database_of_before(postgres: EmbeddedPostgres) -> Iterator[tuple[str, dict[str, UUID]]]:
    """A database at the revision before, with a large agent and a small one; and its name."""
    name, agents = f"old_{uuid4().hex}", {each: uuid4() for each in MESSAGES}
    prepare_embedded(postgres.url(), name)
    upgrade(postgres.url(name, OWNER_ROLE), "0017")
    with psycopg.connect(postgres.url(name, OWNER_ROLE)) as connection:
        for each, agent in agents.items():
            values = {"agent": agent, "name": each, "messages": MESSAGES[each], "vectors": VECTORS}
            with psycopg.ClientCursor(connection) as cursor:
                cursor.execute(AGENT, values)
                cursor.execute("SELECT table_name FROM recall_embeddings LIMIT 1")
                [table] = cursor.fetchone() or [""]
                cursor.execute(sql.SQL(ROWS).format(sql.Identifier(table)), values)
    yield name, agents
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


async def test_vectors_of_before_are_found_while_those_of_large_agents_are_indexed(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_index, "LARGE_AT_ONCE", 50)
    monkeypatch.setattr(message_index, "BATCHES_OF_A_JOB", 2)
    with database_of_before(postgres) as (name, agents):
        owner = postgres.url(name, OWNER_ROLE)
        upgrade(owner, "head")
        database = Database(postgres.url(name, APP_ROLE), pool_size=2)
        await database.open()

        async def found(agent: UUID) -> tuple[bool, list[int]]:
            async with database.tenant("mine") as tx:
                state = await find_embedded(tx, agent, *MODEL)
                assert state is not None
                best = await nearest(tx, state, [1.0, 0.5, 1.2], RecallQuery(), 20)
            return state.in_index, [each.position for each in best]

        before = {each: await found(agent) for each, agent in agents.items()}
        with psycopg.connect(owner) as connection:
            jobs = connection.execute(
                "SELECT queueing_lock, args ->> 'tenant' FROM procrastinate_jobs WHERE status = 'todo'"
            ).fetchall()
        handler = MessageIndexing(database, ArchivalStorage(HashingEmbedder(3, model="hashing")))
        during = []
        for _ in range(VECTORS // 100 + 1):
            await handler.run(JobRun("mine", {}, 1, last=False))
            during.append(await found(agents["large"]))
        small = await found(agents["small"])
        await database.close()
    assert jobs == [(f"{JOB}:mine", "mine")]
    assert before["large"][0] is False
    assert [each for each, _ in during] == [False, False, False, True]
    assert {tuple(positions) for _, positions in during} == {tuple(before["large"][1])}
    assert small == before["small"]
    assert small[0] is False
