"""The schema can be spread over machines by Citus: what an agent has lies with the agent.

Citus wants the distribution column in every unique key of a distributed table, and in every foreign key between two of them. What
can't have it is named here, with the answer: a new table, key or reference has to be placed before this test passes.
"""

import psycopg

from tests.support.server import OneDatabase

DISTRIBUTED = {
    "agents": "id",
    **dict.fromkeys(
        (
            "agent_collections",
            "agent_sections",
            "agent_state",
            "agent_tools",
            "message_word_shares",
            "message_words",
            "messages",
            "recall_blocks",
            "recall_counts",
            "recall_embeddings",
            "recall_index",
            "summaries",
            "tool_calls",
            "turn_steps",
            "turns",
        ),
        "agent_id",
    ),
    # A group of their own: a collection may be read by many agents.
    "collections": "id",
    "collection_words": "collection_id",
    "passages": "collection_id",
    "vector_builds": "collection_id",
}
"""Tables by the column that says where a row lies."""
AGENT = {name for name, column in DISTRIBUTED.items() if column == "agent_id"} | {"agents"}
ELSEWHERE = {
    "api_keys": "reference: read with every request, by its digest",
    "document_files": "local, or object storage: read once, when a document is ingested",
    "document_texts": "local, or object storage: as document_files",
    "documents": "local: found by its id alone, and small without its file and its text",
    "embedding_models": "reference: a row for each model",
    "idempotency_keys": "distributed by tenant alone: nothing is joined to it",
    "mcp_servers": "reference: few, joined to tools",
    "memserver_compatibility": "local: one row",
    "memserver_migrations": "local: one row",
    "operation_minutes": "local: a row for each minute of a day",
    "pictures": "distributed by tenant alone: found by its digest, or object storage",
    "procrastinate_events": "local: the jobs' own database",
    "procrastinate_jobs": "local: the jobs' own database",
    "procrastinate_periodic_defers": "local: the jobs' own database",
    "procrastinate_workers": "local: the jobs' own database",
    "retired_vectors": "local: names of tables that are to be dropped",
    "section_edits": "reference or local: shared sections are edited seldom",
    "sections": "reference: shared by agents, read with every turn",
    "tenants": "reference: a row for each tenant",
    "timers": "local: looked for by what is due, of all agents",
    "tools": "reference: shared by a tenant's agents",
    "webhooks": "reference: few, read by triggers",
    "write_checks": "local: one row",
}
"""Tables that are not spread with the agents, and what they are instead."""
OPEN_KEYS = {
    "agents_tenant_name_key": "a name is looked for in the whole tenant: a reference table of names",
    "agents_of_template": "looked for by the template: the same table",
    "collections_by_name": "as agents' names",
}
OPEN_REFERENCES = {
    "agent_collections_collection_id_fkey": "a collection lies elsewhere: the deletion of one has to clear it",
    "agents_collection_id_fkey": "the agent's own collection: the deletion of the agent has to take it along",
    "agents_template_id_fkey": "an agent's template lies elsewhere: cleared by the template's deletion",
}
"""Keys and references across machines, which Citus would refuse, and what has to take their place."""
KEYS = """
    SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, array_agg(a.attname::text)
    FROM pg_index i JOIN pg_class r ON r.oid = i.indrelid
    JOIN pg_namespace n ON n.oid = r.relnamespace
    JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = ANY (i.indkey)
    WHERE i.indisunique AND n.nspname = 'public' GROUP BY 1, 2
"""
REFERENCES = """
    SELECT k.conname::text, k.conrelid::regclass::text, k.confrelid::regclass::text,
        ARRAY(SELECT (a.attname, b.attname)::text FROM unnest(k.conkey, k.confkey) u(here, there)
            JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.here
            JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = u.there)
    FROM pg_constraint k WHERE k.contype = 'f'
"""
TABLES = """
    SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p')
"""


def test_every_table_has_a_place_and_every_key_the_column_that_says_where_a_row_lies(
    database: OneDatabase,
) -> None:
    with psycopg.connect(database.superuser) as connection:
        tables = {name for (name,) in connection.execute(TABLES)}
        keys = connection.execute(KEYS).fetchall()
        references = connection.execute(REFERENCES).fetchall()
    assert DISTRIBUTED.keys() | ELSEWHERE.keys() == tables
    assert not DISTRIBUTED.keys() & ELSEWHERE.keys()
    scattered = {
        key for table, key, columns in keys
        if table in DISTRIBUTED and DISTRIBUTED[table] not in columns
    }  # fmt: skip
    assert scattered == OPEN_KEYS.keys()
    across = set()
    for name, here, there, pairs in references:
        if here not in DISTRIBUTED or ELSEWHERE.get(there, "").startswith("reference"):
            continue
        if f"({DISTRIBUTED[here]},{DISTRIBUTED.get(there)})" not in pairs:
            across.add(name)
    assert across == OPEN_REFERENCES.keys()


def test_no_reference_points_from_an_unspread_table_to_a_spread_one_but_where_it_is_said(
    database: OneDatabase,
) -> None:
    with psycopg.connect(database.superuser) as connection:
        references = connection.execute(REFERENCES).fetchall()
    found = {
        name for name, here, there, _ in references if here in ELSEWHERE and there in DISTRIBUTED
    }
    assert found == {"documents_collection_id_fkey", "timers_agent_id_fkey"}
