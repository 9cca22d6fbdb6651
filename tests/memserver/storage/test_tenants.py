"""A tenant's rows are nobody else's, whatever a query forgets: row-level security, as the app role."""

import psycopg
import pytest

from memserver.errors import SetupError
from memserver.storage.checks import check_app_url
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.picture_files import data_url, png
from tests.support.server import OneDatabase, serving

EVERYTHING = [
    Call("working_context_append", {"section": "human", "content": "x", "request_heartbeat": True}),
    Call("archival_memory_insert", {"content": "a passage", "request_heartbeat": True}),
    say("done"),
]
EMPTY = {
    "summaries",
    "agent_collections",
    "collection_words",
    "message_word_shares",
    "vector_builds",
    "retired_vectors",
}
CLIENT_TOOL = {"kind": "client", "name": "look", "description": "Look around."}


async def test_no_table_shows_a_row_to_another_tenant_or_to_none(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(EVERYTHING)) as server:
        agent = await server.create_agent()
        await server.http.post("/v1/tools", json=CLIENT_TOOL)
        await server.http.put(f"/v1/agents/{agent}/tools/look", json={})
        server.rows(
            """INSERT INTO mcp_servers (id, tenant, name, url)
               VALUES (gen_random_uuid(), 'default', 'wiki', 'https://wiki.example/mcp') RETURNING id"""
        )
        body = {"text": "hello", "pictures": [{"url": data_url(png(1, 1))}]}
        assert (await server.http.post(f"/v1/agents/{agent}/messages", json=body)).is_success
        await server.http.post(f"/v1/agents/{agent}/documents", content=b"a file")
        await server.run_jobs()
        remind = {"in_seconds": 3600, "text": "x"}
        await server.http.post(f"/v1/agents/{agent}/timers", json=remind)
        hook = {"url": "https://example.org/events", "events": ["turn.ended"]}
        await server.http.post("/v1/webhooks", json=hook)
        guarded = server.rows(
            """SELECT DISTINCT c.relrowsecurity FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
               WHERE c.relkind IN ('r', 'p') AND a.attname = 'tenant'"""
        )
        key = await server.http.post(
            "/v1/keys", json={"name": "mine"}, headers={"Idempotency-Key": "once"}
        )
        assert key.status_code == 201
        tables = [
            name
            for (name,) in server.rows(
                """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                   WHERE c.relkind IN ('r', 'p') AND a.attname = 'tenant' AND NOT c.relispartition
                     AND c.relnamespace = 'public'::regnamespace"""
            )
        ]
    assert guarded == [(True,)]
    assert len(tables) == 36
    for tenant, sees in (("default", True), ("other", False), ("", False)):
        with psycopg.connect(database.app) as connection:
            connection.execute("SELECT set_config('memserver.tenant', %s, true)", [tenant])
            for table in sorted(set(tables) - EMPTY):
                rows = connection.execute(f"SELECT 1 FROM {table} LIMIT 1".encode()).fetchall()
                assert bool(rows) is sees, table


def test_every_table_has_a_tenant_and_a_policy_or_is_known_to_need_none(
    database: OneDatabase,
) -> None:
    with psycopg.connect(database.superuser) as connection:
        connection.execute("SELECT vectors_table('a model', 3)")
        tables = connection.execute(
            """SELECT c.relname, c.relrowsecurity, EXISTS (
                   SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant')
               FROM pg_class c
               WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace"""
        ).fetchall()
    without = {name for name, secured, owned in tables if not (secured and owned)}
    jobs = {name for name in without if name.startswith("procrastinate_")}
    assert without - jobs == {
        "embedding_models",
        "memserver_compatibility",
        "memserver_migrations",
        "operation_minutes",
        "write_checks",
    }
    assert len(tables) > 20


async def test_a_row_can_not_be_written_for_another_tenant(database: OneDatabase) -> None:
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_config('memserver.tenant', 'mine', true)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(
                """INSERT INTO collections (id, tenant, name, embedding_model, dimension, vectors_table)
                   VALUES (gen_random_uuid(), 'yours', 'x', 'm', 3, 'vectors_x')"""
            )


def test_the_application_role_owns_nothing_and_can_not_bypass(database: OneDatabase) -> None:
    with psycopg.connect(database.app) as connection:
        role = connection.execute(
            "SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        owned = connection.execute(
            "SELECT count(*) FROM pg_class WHERE pg_get_userbyid(relowner) = current_user"
        ).fetchone()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (x int)")
    assert role == (False, False, False)
    assert owned == (0,)


def test_a_connection_that_sees_every_tenant_is_refused(database: OneDatabase) -> None:
    check_app_url(database.app)
    for url in (database.owner, database.superuser):
        with pytest.raises(SetupError, match="not bound by row-level security"):
            check_app_url(url)


async def test_functions_that_no_policy_binds_show_and_change_nothing_of_another_tenant(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(EVERYTHING)) as server:
        agent = await server.create_agent()
        await server.say(agent, "hello")
        [(collection, table)] = server.rows("SELECT id, vectors_table FROM collections")
    vector = f"[{','.join(['1'] + ['0'] * 383)}]"
    asked = {
        "count": ("SELECT count_matching(ARRAY[%s]::uuid[], '{}', 10) > 0", [collection]),
        "list": (
            "SELECT count(*) > 0 FROM list_matching(ARRAY[%s]::uuid[], '{}', NULL, 10, false)",
            [collection],
        ),
        "vectors": (
            "SELECT count(*) > 0 FROM nearest_one_by_one(%s, ARRAY[%s]::uuid[], %s, '{}', 10)",
            [table, collection, vector],
        ),
        "words": (
            "SELECT count(*) > 0 FROM rank_by_text(ARRAY[%s]::uuid[], 'passage', '{}', 10, 100)",
            [collection],
        ),
    }
    for tenant, sees in (("default", True), ("other", False), ("", False)):
        with psycopg.connect(database.app) as connection:
            connection.execute("SELECT set_config('memserver.tenant', %s, true)", [tenant])
            for name, (query, parameters) in asked.items():
                row = connection.execute(query.encode(), parameters).fetchone()
                assert row == (sees,), name
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_config('memserver.tenant', 'default', false)")
        row = connection.execute("SELECT own_vectors_table(%s, 384)", [collection]).fetchone()
        assert row is not None
        own = row[0]
        connection.execute(
            f"INSERT INTO {own} VALUES (%s, %s, 'default', %s)".encode(),
            [collection, collection, vector],
        )
        connection.commit()
        connection.execute("SELECT set_config('memserver.tenant', 'other', false)")
        connection.commit()
        for query in ("SELECT own_vectors_table(%s, 384)", "SELECT drop_own_table(%s)"):
            asked_for = own if "drop" in query else collection
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query.encode(), [asked_for])
            connection.rollback()
        with pytest.raises(psycopg.errors.NoDataFound):
            connection.execute("SELECT index_vectors(%s, '64MB')", [collection])
