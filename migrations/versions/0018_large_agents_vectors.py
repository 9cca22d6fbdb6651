"""The index of messages' vectors holds those of large agents only: the others' are compared one by one.

An entry in it costs as much as all else that is done to index a message. Vectors before `large_to` are large and
so in the index, none after; the job that indexes messages moves it on. Until it is at `embedded_to` an agent's
vectors are compared one by one, and so nothing is missed while existing histories change over.
"""

from alembic import op

revision = "0018"
down_revision = "0017"

COLUMN = "ALTER TABLE recall_embeddings ADD COLUMN large_to bigint NOT NULL DEFAULT 0;"

# Of 60,000 vectors of messages, .987 of the ten nearest are found (`ef_search` 400) for .69 ms of CPU an entry; with the
# 12 and 40 of before, and 200, it was .969 for 1.04 ms.
TABLE = """
CREATE OR REPLACE FUNCTION message_vectors_table(model text, dims integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found_name text := 'message_vectors_' || substr(md5(model || '/' || dims), 1, 12);
    part text;
BEGIN
    IF to_regclass(found_name) IS NOT NULL THEN
        RETURN found_name;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('memserver message_vectors_table', 0));
    -- Not to_regclass, which may still remember from before the lock that there was none.
    IF EXISTS (SELECT 1 FROM pg_class
               WHERE relname = found_name AND relnamespace = current_schema()::regnamespace) THEN
        RETURN found_name;
    END IF;
    EXECUTE format(
        'CREATE TABLE %I (
             agent_id  uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
             position  bigint NOT NULL,
             part      integer NOT NULL,
             tenant    text NOT NULL,
             embedding halfvec(%s) NOT NULL,
             large     boolean NOT NULL DEFAULT false,
             PRIMARY KEY (agent_id, position, part)
         ) PARTITION BY HASH (agent_id)', found_name, dims);
    PERFORM keep_to_tenant(found_name);
    FOR number IN 0..15 LOOP
        part := found_name || '_' || number;
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
                       part, found_name, number);
        EXECUTE format('ALTER TABLE %I ALTER COLUMN embedding SET STORAGE PLAIN', part);
        PERFORM keep_to_tenant(part);
    END LOOP;
    EXECUTE format('CREATE INDEX %I ON %I USING hnsw (embedding halfvec_cosine_ops)
                    WITH (m = 8, ef_construction = 48) WHERE large', found_name || '_hnsw', found_name);
    RETURN found_name;
END
$$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION message_vectors_table SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END
$$;
"""

# OFFSET 0: else, where there are no statistics yet, as after an import, the planner reads all of an agent's messages
# and compares each with each of the places.
INDEXING = r"""
-- Indexes the messages at these positions, which follow what is indexed, and says that all before `until` is.
-- `seen`: the languages that occur in the history now; `spoken`: that of each message.
CREATE OR REPLACE FUNCTION index_messages(
    agent uuid, places bigint[], spoken text[], seen text[], until bigint
) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    state recall_index;
    said record;
    numbers integer[] := '{}';
    most_lexed CONSTANT integer := 100000;
BEGIN
    SELECT * INTO state FROM recall_index WHERE agent_id = agent FOR UPDATE;
    IF NOT FOUND OR until <= state.indexed_to OR places[1] < state.indexed_to THEN
        RETURN false; -- another one has
    END IF;
    FOR said IN SELECT created_at, octet_length(content) AS bytes FROM messages
                WHERE agent_id = agent AND position = ANY (places) ORDER BY position
    LOOP
        IF state.block_holds >= 64 OR state.block_bytes + said.bytes > 6400 AND state.block_holds > 0 THEN
            state.block := state.block + 1;
            state.block_holds := 0;
            state.block_bytes := 0;
        END IF;
        state.block_holds := state.block_holds + 1;
        state.block_bytes := state.block_bytes + said.bytes + 20;
        state.messages := state.messages + 1;
        state.in_order := state.in_order AND state.last_time <= said.created_at;
        state.last_time := greatest(state.last_time, said.created_at);
        numbers := numbers || state.block;
    END LOOP;
    INSERT INTO recall_blocks AS b
    SELECT agent, f.block, state.tenant, min(m.created_at), max(m.created_at),
           array_agg(m.position ORDER BY m.position), array_agg(m.created_at ORDER BY m.position),
           string_agg(left(m.role, 1), '' ORDER BY m.position),
           string_agg(block_text(m.content), E'\u0001' ORDER BY m.position)
    FROM unnest(places, numbers) AS f (place, block)
    CROSS JOIN LATERAL (SELECT * FROM messages WHERE agent_id = agent AND position = f.place OFFSET 0) m
    GROUP BY f.block
    ON CONFLICT (agent_id, block) DO UPDATE SET
        first_time = least(b.first_time, excluded.first_time),
        last_time = greatest(b.last_time, excluded.last_time),
        positions = b.positions || excluded.positions, times = b.times || excluded.times,
        roles = b.roles || excluded.roles, body = b.body || E'\u0001' || excluded.body;
    INSERT INTO message_words
    SELECT agent, m.position, state.tenant, m.role, m.created_at,
           lexemes_of(f.language, left(m.content, most_lexed))
    FROM unnest(places, spoken) AS f (place, language)
    CROSS JOIN LATERAL (SELECT * FROM messages WHERE agent_id = agent AND position = f.place OFFSET 0) m;
    UPDATE recall_index SET indexed_to = until, languages = seen, in_order = state.in_order,
        last_time = state.last_time, messages = state.messages, block = state.block, block_holds = state.block_holds,
        block_bytes = state.block_bytes
    WHERE agent_id = agent;
    RETURN true;
END
$$;
"""

EXISTING = """
DO $$
DECLARE
    made text;
BEGIN
    FOR made IN SELECT relname FROM pg_class
                WHERE relkind = 'p' AND relname LIKE 'message\\_vectors\\_%'
                  AND relnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN large boolean NOT NULL DEFAULT false', made);
        EXECUTE format('DROP INDEX IF EXISTS %I', made || '_hnsw');
        EXECUTE format('CREATE INDEX %I ON %I USING hnsw (embedding halfvec_cosine_ops)
                        WITH (m = 8, ef_construction = 48) WHERE large', made || '_hnsw', made);
    END LOOP;
END
$$;
UPDATE recall_index SET waiting = true
    WHERE agent_id IN (SELECT agent_id FROM recall_embeddings WHERE messages > 10000);
SELECT defer_job('index_messages', tenant, '{}', tenant, -10, NULL)
    FROM (SELECT DISTINCT tenant FROM recall_embeddings WHERE messages > 10000) changing;
"""


def upgrade() -> None:
    """Replace the index; the jobs make the rows of large agents large."""
    for part in (COLUMN, TABLE, INDEXING, EXISTING):
        op.get_bind().exec_driver_sql(part.replace("%", "%%"))
