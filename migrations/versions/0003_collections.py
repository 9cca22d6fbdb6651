"""Collections as things of their own: shared ones, their language, where their vectors lie, and search keys.

The vectors of small collections lie together in one table for each embedding model and are compared one by
one. A large collection has a table of its own with an HNSW index, so that no other collection's vectors are
in the index's way. Which table it is stands in `collections.vectors_table`; changing that row is what
switches a collection to vectors that were built beside the old ones.
"""

from alembic import op

revision = "0003"
down_revision = "0002"

# Functions of an index's expression: nothing here may come from outside pg_catalog.
KEYS = """
-- A text's lexemes. A tsvector holds a megabyte; of a text that has more, the beginning is taken.
CREATE FUNCTION lexemes_of(language text, content text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    characters integer := 250000;
BEGIN
    IF length(content) < 50000 THEN
        RETURN to_tsvector(language::regconfig, content);
    END IF;
    LOOP
        BEGIN
            RETURN to_tsvector(language::regconfig, left(content, characters));
        EXCEPTION WHEN program_limit_exceeded THEN
            characters := characters / 2;
        END;
    END LOOP;
END
$$;

-- What one GIN index over all collections finds a passage by: its words, tags and metadata, each hashed
-- together with the collection, so that a posting list never holds two collections' passages.
CREATE FUNCTION search_keys(collection uuid, lexemes tsvector, tags text[], metadata jsonb)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array(
        SELECT hashtextextended('w' || word, uuid_hash_extended(collection, 0))
        FROM unnest(tsvector_to_array(lexemes)) word
        UNION ALL
        SELECT hashtextextended('t' || tag, uuid_hash_extended(collection, 0))
        FROM unnest(tags) tag
        UNION ALL
        SELECT hashtextextended('m' || m.key || CASE jsonb_typeof(m.value)
                   WHEN 'object' THEN '' WHEN 'array' THEN ''
                   WHEN 'number' THEN '=' || trim_scale(m.value::text::numeric)
                   ELSE '=' || m.value::text END, uuid_hash_extended(collection, 0))
        FROM jsonb_each(metadata) m
    )
$$;
"""

TABLES = """
ALTER TABLE collections
    ADD COLUMN own           boolean NOT NULL DEFAULT false,
    ADD COLUMN description   text NOT NULL DEFAULT '',
    ADD COLUMN metadata      jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN language      text NOT NULL DEFAULT 'english',
    ADD COLUMN vectors_table text,
    ADD COLUMN edited_at     timestamptz NOT NULL DEFAULT now();
UPDATE collections c SET own = EXISTS (SELECT 1 FROM agents WHERE collection_id = c.id),
    vectors_table = vectors_table(embedding_model, dimension);
ALTER TABLE collections ALTER COLUMN vectors_table SET NOT NULL;
CREATE UNIQUE INDEX collections_by_name ON collections (tenant, name) WHERE NOT own;

CREATE TABLE agent_collections (
    agent_id      uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    collection_id uuid NOT NULL REFERENCES collections ON DELETE CASCADE,
    tenant        text NOT NULL,
    attached_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, collection_id)
);
CREATE INDEX agent_collections_by_collection ON agent_collections (collection_id);

ALTER TABLE passages
    ADD COLUMN lexemes    tsvector NOT NULL DEFAULT '',
    ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now();
UPDATE passages p SET lexemes = lexemes_of(c.language, p.content), updated_at = p.created_at
    FROM collections c WHERE c.id = p.collection_id;
CREATE INDEX passages_by_key ON passages
    USING gin (search_keys(collection_id, lexemes, tags, metadata)) WITH (fastupdate = off);

-- Vectors that are being built beside those that serve. The table is filled in the order of ids up to
-- `filled_to`, indexed, and then caught up with what came in meanwhile.
CREATE TABLE vector_builds (
    collection_id   uuid PRIMARY KEY REFERENCES collections ON DELETE CASCADE,
    tenant          text NOT NULL,
    embedding_model text NOT NULL,
    dimension       integer NOT NULL,
    vectors_table   text NOT NULL,
    state           text NOT NULL DEFAULT 'filling'
                    CHECK (state IN ('filling', 'indexing', 'catching_up')),
    filled_to       uuid,
    stored          bigint NOT NULL DEFAULT 0,
    started_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);

-- Vectors that no longer serve; kept for a moment, for searches that began before the switch.
CREATE TABLE retired_vectors (
    vectors_table text NOT NULL,
    collection_id uuid NOT NULL,
    tenant        text NOT NULL,
    retired_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (vectors_table, collection_id)
);

-- How many passages an agent's prompt speaks of follows from its collections.
ALTER TABLE agent_state DROP COLUMN passage_count, DROP COLUMN stats_passages;
"""

# A foreign key of each vectors table would make every deletion ask every one of them. Who deletes a
# passage deletes its vectors in the same transaction.
VECTORS = """
DO $$
DECLARE
    model record;
    key record;
BEGIN
    FOR model IN SELECT table_name FROM embedding_models LOOP
        FOR key IN SELECT conname FROM pg_constraint
                   WHERE contype = 'f' AND conrelid = model.table_name::regclass LOOP
            EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', model.table_name, key.conname);
        END LOOP;
    END LOOP;
END
$$;

CREATE FUNCTION make_vectors_table(table_name text, dims integer) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE %I (
             collection_id uuid NOT NULL,
             passage_id    uuid NOT NULL,
             tenant        text NOT NULL,
             embedding     halfvec(%s) NOT NULL,
             PRIMARY KEY (collection_id, passage_id)
         )', table_name, dims);
    EXECUTE format('ALTER TABLE %I ALTER COLUMN embedding SET STORAGE PLAIN', table_name);
    PERFORM keep_to_tenant(table_name);
END
$$;
REVOKE ALL ON FUNCTION make_vectors_table FROM PUBLIC;

-- The table that holds the vectors of a model's small collections; made when the model is first seen.
CREATE OR REPLACE FUNCTION vectors_table(model text, dims integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found_name text;
BEGIN
    SELECT table_name INTO found_name FROM embedding_models
    WHERE name = model AND dimension = dims;
    IF found_name IS NOT NULL THEN
        RETURN found_name;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('memserver vectors_table', 0));
    found_name := 'vectors_' || substr(md5(model || '/' || dims), 1, 12);
    INSERT INTO embedding_models VALUES (model, dims, found_name) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM make_vectors_table(found_name, dims);
    END IF;
    RETURN found_name;
END
$$;

-- A new, empty table for the vectors of one collection alone, without an index yet.
CREATE FUNCTION own_vectors_table(collection uuid, dims integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    new_name text := 'vectors_own_' || replace(collection::text, '-', '')
                     || '_' || substr(md5(random()::text), 1, 8);
BEGIN
    PERFORM 1 FROM collections
    WHERE id = collection AND tenant = current_setting('memserver.tenant', true);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such collection' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM make_vectors_table(new_name, dims);
    RETURN new_name;
END
$$;

-- The HNSW index of the table that a collection's vectors are being built in. A parallel build needs
-- shared memory that a container may not have; then it is built alone.
CREATE FUNCTION index_vectors(collection uuid, memory text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    build vector_builds;
BEGIN
    SELECT * INTO STRICT build FROM vector_builds
    WHERE collection_id = collection AND tenant = current_setting('memserver.tenant', true);
    IF build.vectors_table NOT LIKE 'vectors\\_own\\_%' THEN
        RETURN;
    END IF;
    PERFORM set_config('maintenance_work_mem', memory, true);
    BEGIN
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %I USING hnsw (embedding halfvec_cosine_ops)',
                       build.vectors_table || '_hnsw', build.vectors_table);
    EXCEPTION WHEN insufficient_resources OR system_error THEN
        PERFORM set_config('max_parallel_maintenance_workers', '0', true);
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %I USING hnsw (embedding halfvec_cosine_ops)',
                       build.vectors_table || '_hnsw', build.vectors_table);
    END;
    EXECUTE format('ANALYZE %I', build.vectors_table);
END
$$;

-- Drops the table of one collection alone, which no collection's row names any more.
CREATE FUNCTION drop_own_table(own_table text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    theirs boolean;
BEGIN
    IF own_table NOT LIKE 'vectors\\_own\\_%' OR to_regclass(own_table) IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE tenant IS DISTINCT FROM $1)', own_table)
        INTO theirs USING current_setting('memserver.tenant', true);
    IF theirs OR EXISTS (SELECT 1 FROM collections WHERE vectors_table = own_table) THEN
        RAISE EXCEPTION 'the table is in use' USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('DROP TABLE %I', own_table);
END
$$;
"""

FUNCTIONS = """
-- Every collection that an agent searches: its own, and those attached to it.
CREATE FUNCTION collections_of(agent uuid) RETURNS SETOF collections
LANGUAGE sql STABLE AS $$
    SELECT c.* FROM collections c WHERE c.id IN (
        SELECT collection_id FROM agents WHERE id = agent
        UNION ALL
        SELECT collection_id FROM agent_collections WHERE agent_id = agent)
$$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION own_vectors_table, index_vectors, drop_own_table FROM PUBLIC;
GRANT EXECUTE ON FUNCTION own_vectors_table, index_vectors, drop_own_table TO memserver_app;
"""


def upgrade() -> None:
    """Create them, and give what is there its place."""
    op.execute(KEYS)
    op.execute(TABLES)
    for table in ("agent_collections", "vector_builds", "retired_vectors"):
        op.execute(f"SELECT keep_to_tenant('{table}')")
    op.execute(VECTORS)
    op.execute(FUNCTIONS)
    op.execute(GRANTS)
