"""The index of messages' vectors holds those of large agents only: the others' are compared one by one.

An entry in it costs as much as all else that is done to index a message. Vectors before `large_to` are large and
so in the index, none after; the job that indexes messages moves it on. Until it is at `embedded_to` an agent's
vectors are compared one by one, and so nothing is missed while existing histories change over.
"""

from alembic import op

revision = "0018"
down_revision = "0017"

COLUMN = "ALTER TABLE recall_embeddings ADD COLUMN large_to bigint NOT NULL DEFAULT 0;"

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
                    WITH (m = 12, ef_construction = 40) WHERE large', found_name || '_hnsw', found_name);
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
                        WITH (m = 12, ef_construction = 40) WHERE large', made || '_hnsw', made);
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
    for part in (COLUMN, TABLE, EXISTING):
        op.get_bind().exec_driver_sql(part.replace("%", "%%"))
