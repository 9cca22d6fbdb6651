"""A tenant's rows are nobody else's, whatever a query forgets: row-level security, as the app role."""

import psycopg
import pytest

from memserver.errors import SetupError
from memserver.llm.scripted import Call, ScriptedModel, say
from memserver.storage.checks import check_app_url
from tests.support import OneDatabase, serving

EVERYTHING = [
    Call("working_context_append", {"section": "human", "content": "x", "request_heartbeat": True}),
    Call("archival_memory_insert", {"content": "a passage", "request_heartbeat": True}),
    say("done"),
]
EMPTY = {
    "summaries",
    "agent_collections",
    "collection_words",
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
        await server.say(agent, "hello")
        tables = [
            name
            for (name,) in server.rows(
                """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                   WHERE c.relkind = 'r' AND a.attname = 'tenant'
                     AND c.relnamespace = 'public'::regnamespace"""
            )
        ]
    assert len(tables) == 19
    for tenant, sees in (("default", True), ("other", False), ("", False)):
        with psycopg.connect(database.app) as connection:
            connection.execute("SELECT set_config('memserver.tenant', %s, true)", [tenant])
            for table in sorted(set(tables) - EMPTY):
                rows = connection.execute(f"SELECT 1 FROM {table} LIMIT 1".encode()).fetchall()
                assert bool(rows) is sees, table


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
