"""Passages from before there were collections of their own are found as ever after the migration."""

from uuid import uuid4

import psycopg
from psycopg import sql

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage import collections, passage_search
from memserver.storage.database import Database
from memserver.storage.migrate import APP_ROLE, OWNER_ROLE, prepare_embedded
from memserver.storage.passage_search import EVERYTHING
from tests.support.migrating import upgrade

BEFORE = """
SELECT set_config('memserver.tenant', 'mine', false);
INSERT INTO collections (id, tenant, name, embedding_model, dimension, passage_count)
    VALUES ('{agent}', 'mine', 'ada', 'm', 3, 1);
INSERT INTO agents (id, tenant, name, collection_id) VALUES ('{agent}', 'mine', 'ada', '{agent}');
INSERT INTO agent_state (agent_id, tenant, passage_count) VALUES ('{agent}', 'mine', 1);
INSERT INTO passages (collection_id, id, tenant, content, tags)
    VALUES ('{agent}', '{passage}', 'mine', 'The cellos in the Café by 西湖 are tuned.', '{{music}}');
"""


async def test_passages_of_the_first_schema_are_found_by_vector_and_by_words(
    postgres: EmbeddedPostgres,
) -> None:
    name = f"old_{uuid4().hex}"
    prepare_embedded(postgres.url(), name)
    owner = postgres.url(name, OWNER_ROLE)
    upgrade(owner, "0002")
    agent, passage = uuid4(), uuid4()
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(BEFORE.format(agent=agent, passage=passage).encode())
        row = connection.execute("SELECT vectors_table('m', 3)").fetchone()
        assert row is not None
        connection.execute(
            sql.SQL("INSERT INTO {} VALUES (%s, %s, 'mine', '[1,0,0]')").format(
                sql.Identifier(row[0])
            ),
            [agent, passage],
        )
    upgrade(owner, "head")
    database = Database(postgres.url(name, APP_ROLE), pool_size=2)
    await database.open()
    async with database.tenant("mine") as tx:
        [own] = await collections.readable_by(tx, agent)
        nearest = await passage_search.nearest(tx, [own], [1.0, 0.0, 0.0], EVERYTHING, at_most=10)
        by_words = await passage_search.by_text(tx, [own], "a cello", EVERYTHING, at_most=10)
        folded = await passage_search.by_text(tx, [own], "cafe 西湖", EVERYTHING, at_most=10)
    await database.close()
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
    assert (own.own, own.passage_count, own.language) == (True, 1, "english")
    assert [ranked.passage_id for ranked in nearest] == [passage]
    assert [ranked.passage_id for ranked in by_words] == [passage]
    assert [ranked.passage_id for ranked in folded] == [passage]
    assert (own.last_number, own.languages) == (1, [])
