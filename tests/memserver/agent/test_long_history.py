"""What a turn reads of the database doesn't grow with the agent's history."""

import psycopg

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.long_history import sentences, settle, write_history
from tests.support.server import OneDatabase, serving

TURNS = 10_000
IN_QUEUE = 76
READ = """SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
          FROM pg_stat_user_tables WHERE relname IN ('turns', 'messages', 'tool_calls')"""


def rows_read(database: OneDatabase) -> dict[str, int]:
    """So far, by table; of connections that have ended."""
    with psycopg.connect(database.superuser) as connection:
        return dict(connection.execute(READ).fetchall())


async def test_a_turn_the_context_and_a_compaction_read_the_queue_and_not_the_history(
    database: OneDatabase,
) -> None:
    note = {"section": "human", "content": "x", "request_heartbeat": True}
    model = ScriptedModel(
        [Call("working_context_append", note), say("one"), say("two")], context_window=3000
    )
    async with serving(database, model) as server:
        agent = await server.create_agent(options={"max_output_tokens": 200})
    list(write_history(database.superuser, agent, 2 * TURNS, IN_QUEUE, sentences(["old"], 0)))
    settle(database.superuser)
    async with serving(
        database, model, embed_messages=False
    ) as server:  # what was said before is indexed
        server.rows("SELECT request_indexing(agent_id, tenant) FROM agent_state")
        await server.run_jobs()
    before = rows_read(database)
    async with serving(database, model, embed_messages=False) as server:
        for text in ("Note this.", "And now?"):
            await server.say(agent, text)
        assert (await server.get(f"{agent}/context"))["queue"][-1]["text"] == "two"
        assert (await server.get(f"{agent}/messages", limit=5))["items"]
        assert server.rows(
            "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'compact'"
        ) == [(1,)]
        await server.run_jobs()
        assert server.rows("SELECT count(*) FROM summaries") == [(2,)]
    read = {table: count - before[table] for table, count in rows_read(database).items()}
    assert len(read) == 3
    assert all(0 < count < 20 * IN_QUEUE for count in read.values()), read
