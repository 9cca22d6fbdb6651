"""What was counted in bytes is counted in tokens after the migration."""

from uuid import uuid4

import psycopg
from psycopg import sql

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.migrate import OWNER_ROLE, prepare_embedded
from tests.support.migrating import upgrade

BEFORE = """
SELECT set_config('memserver.tenant', 'mine', false);
INSERT INTO collections (id, tenant, name, embedding_model, dimension, vectors_table)
    VALUES ('{id}', 'mine', '{id}', 'm', 3, vectors_table('m', 3));
INSERT INTO agents (id, tenant, name, collection_id) VALUES ('{id}', 'mine', '{id}', '{id}');
INSERT INTO agent_state (agent_id, tenant, queue_start, token_scale) VALUES ('{id}', 'mine', 4, {scale});
INSERT INTO messages (agent_id, position, tenant, role, content, tokens)
    VALUES ('{id}', 2, 'mine', 'user', 'gone', 400), ('{id}', 4, 'mine', 'user', 'seen', 401);
"""
AFTER = "SELECT tokens FROM messages WHERE agent_id = %s ORDER BY position"


async def test_counts_in_bytes_become_tokens_and_exact_ones_stay(
    postgres: EmbeddedPostgres,
) -> None:
    name = f"old_{uuid4().hex}"
    prepare_embedded(postgres.url(), name)
    owner = postgres.url(name, OWNER_ROLE)
    upgrade(owner, "0020")
    in_bytes, exact = uuid4(), uuid4()
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(BEFORE.format(id=in_bytes, scale=0.25).encode())
        connection.execute(BEFORE.format(id=exact, scale=1.03).encode())
    upgrade(owner, "head")
    with psycopg.connect(postgres.url(name), autocommit=True) as connection:
        tokens = {
            agent: connection.execute(AFTER, [agent]).fetchall() for agent in (in_bytes, exact)
        }
        scales = dict(
            connection.execute(
                "SELECT agent_id, token_scale::numeric(9, 2) FROM agent_state"
            ).fetchall()
        )
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
    assert tokens == {in_bytes: [(400,), (101,)], exact: [(400,), (401,)]}
    assert scales[in_bytes] is None
    assert float(scales[exact]) == 1.03
