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
    ADD COLUMN words_counted bigint NOT NULL DEFAULT 0,
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

-- Words that are common in a large collection, with the share of its passages that hold them, from a
-- sample taken when it had `words_counted` passages.
CREATE TABLE collection_words (
    collection_id uuid NOT NULL REFERENCES collections ON DELETE CASCADE,
    word          text NOT NULL,
    tenant        text NOT NULL,
    share         real NOT NULL,
    PRIMARY KEY (collection_id, word)
);

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
    statement text;
BEGIN
    SELECT * INTO STRICT build FROM vector_builds
    WHERE collection_id = collection AND tenant = current_setting('memserver.tenant', true);
    IF build.vectors_table NOT LIKE 'vectors\\_own\\_%' THEN
        RETURN;
    END IF;
    PERFORM set_config('maintenance_work_mem', memory, true);
    -- pgvector's default of 64 lost a tenth of the results in a million clustered vectors.
    statement := format(
        'CREATE INDEX IF NOT EXISTS %I ON %I USING hnsw (embedding halfvec_cosine_ops)
         WITH (ef_construction = %s)', build.vectors_table || '_hnsw', build.vectors_table,
        CASE WHEN build.stored < 100000 THEN 128 ELSE 200 END);
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN insufficient_resources OR system_error THEN
        PERFORM set_config('max_parallel_maintenance_workers', '0', true);
        EXECUTE statement;
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

# Policies keep the planner off an index whose operator is not leakproof, such as GIN's. These functions
# are run as the owner, whom no policy binds, and name the tenant themselves. `wanted` is a filter:
# any_tags, all_tags, metadata, since, until; each may be left out.
SEARCH = """
CREATE FUNCTION current_tenant() RETURNS text
LANGUAGE sql STABLE AS $$ SELECT current_setting('memserver.tenant', true) $$;

-- A filter as conditions on passages p, beginning with AND. The keys are what the index finds; since
-- they are hashes, the columns are compared as well.
CREATE FUNCTION filter_conditions(searched uuid[], wanted jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    any_tags text[] := ARRAY(SELECT jsonb_array_elements_text(wanted -> 'any_tags'));
    all_tags text[] := ARRAY(SELECT jsonb_array_elements_text(wanted -> 'all_tags'));
    metadata jsonb := coalesce(wanted -> 'metadata', '{}');
    single uuid := CASE WHEN cardinality(searched) = 1 THEN searched[1] END;
    conditions text := '';
BEGIN
    IF cardinality(any_tags) > 0 THEN
        conditions := conditions || format(
            ' AND p.tags && %L::text[]
              AND search_keys(p.collection_id, p.lexemes, p.tags, p.metadata) && %L::bigint[]',
            any_tags,
            ARRAY(SELECT k FROM unnest(searched) c,
                  unnest(search_keys(c, ''::tsvector, any_tags, '{}')) k));
    END IF;
    IF cardinality(all_tags) > 0 THEN
        conditions := conditions || format(' AND p.tags @> %L::text[]', all_tags);
    END IF;
    IF metadata <> '{}' THEN
        conditions := conditions || format(' AND p.metadata @> %L::jsonb', metadata);
    END IF;
    IF single IS NOT NULL AND (cardinality(all_tags) > 0 OR metadata <> '{}') THEN
        conditions := conditions || format(
            ' AND search_keys(p.collection_id, p.lexemes, p.tags, p.metadata) @> %L::bigint[]',
            search_keys(single, ''::tsvector, all_tags, metadata));
    END IF;
    IF wanted ->> 'since' IS NOT NULL THEN
        conditions := conditions || format(' AND p.created_at >= %L', wanted ->> 'since');
    END IF;
    IF wanted ->> 'until' IS NOT NULL THEN
        conditions := conditions || format(' AND p.created_at < %L', wanted ->> 'until');
    END IF;
    RETURN conditions;
END
$$;

-- How many passages a filter lets through; counting ends at at_most.
CREATE FUNCTION count_matching(searched uuid[], wanted jsonb, at_most integer) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    counted bigint;
BEGIN
    EXECUTE format(
        'SELECT count(*) FROM (SELECT 1 FROM passages p
         WHERE p.collection_id = ANY ($1) AND p.tenant = current_tenant() %s LIMIT $2) matching',
        filter_conditions(searched, wanted)) INTO counted USING searched, at_most;
    RETURN counted;
END
$$;

-- The passages of a filter, in the order of their ids.
CREATE FUNCTION list_matching(searched uuid[], wanted jsonb, behind uuid, at_most integer)
RETURNS SETOF passages
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT p.* FROM passages p
         WHERE p.collection_id = ANY ($1) AND p.tenant = current_tenant()
           AND ($2 IS NULL OR p.id > $2) %s ORDER BY p.id LIMIT $3',
        filter_conditions(searched, wanted)) USING searched, behind, at_most;
END
$$;

-- The nearest passages of collections whose vectors lie in one table for all: compared one by one.
CREATE FUNCTION nearest_one_by_one(
    vectors_table text, searched uuid[], query halfvec, wanted jsonb, at_most integer
) RETURNS TABLE (collection_id uuid, passage_id uuid, distance float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    conditions text := filter_conditions(searched, wanted);
BEGIN
    IF vectors_table NOT LIKE 'vectors\\_%' THEN
        RAISE EXCEPTION 'no table of vectors' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF conditions <> '' THEN
        conditions := 'AND EXISTS (SELECT 1 FROM passages p WHERE p.collection_id = v.collection_id
            AND p.id = v.passage_id AND p.tenant = current_tenant() ' || conditions || ')';
    END IF;
    -- The sum keeps a table's HNSW index out of it.
    RETURN QUERY EXECUTE format(
        'SELECT v.collection_id, v.passage_id, (v.embedding <=> $2) + 0 AS d FROM %I v
         WHERE v.collection_id = ANY ($1) AND v.tenant = current_tenant() %s
         ORDER BY d, v.passage_id LIMIT $3', vectors_table, conditions)
        USING searched, query, at_most;
END
$$;

-- The nearest passages of a collection that has a table and an HNSW index of its own. A filter that lets
-- few through is applied first, and those are compared one by one; so is whatever the index, walked with
-- the filter, finds too little for.
CREATE FUNCTION nearest_by_index(
    collection uuid, query halfvec, wanted jsonb, at_most integer, breadth integer, few integer
) RETURNS TABLE (collection_id uuid, passage_id uuid, distance float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    own_table text;
    conditions text := filter_conditions(ARRAY[collection], wanted);
    found_ids uuid[];
    distances float8[];
BEGIN
    SELECT c.vectors_table INTO own_table FROM collections c
    WHERE c.id = collection AND c.tenant = current_tenant();
    IF own_table IS NULL THEN
        RETURN;
    END IF;
    -- Only for this transaction; as a clause of the function only a superuser could set them.
    PERFORM set_config('hnsw.ef_search', breadth::text, true),
            set_config('hnsw.iterative_scan', 'relaxed_order', true),
            set_config('hnsw.max_scan_tuples', '100000', true);
    IF conditions <> '' THEN
        IF count_matching(ARRAY[collection], wanted, few + 1) <= few THEN
            RETURN QUERY SELECT * FROM
                nearest_one_by_one(own_table, ARRAY[collection], query, wanted, at_most);
            RETURN;
        END IF;
        conditions := 'JOIN passages p ON p.collection_id = v.collection_id AND p.id = v.passage_id '
            || conditions;
    END IF;
    EXECUTE format(
        'SELECT array_agg(n.passage_id), array_agg(n.d) FROM (
             SELECT v.passage_id, v.embedding <=> $1 AS d FROM %I v %s
             ORDER BY v.embedding <=> $1 LIMIT $2) n', own_table, conditions)
        INTO found_ids, distances USING query, at_most;
    IF conditions <> '' AND coalesce(cardinality(found_ids), 0) < at_most THEN
        RETURN QUERY SELECT * FROM
            nearest_one_by_one(own_table, ARRAY[collection], query, wanted, at_most);
        RETURN;
    END IF;
    RETURN QUERY SELECT collection, n.id, n.d FROM unnest(found_ids, distances) AS n (id, d)
        ORDER BY n.d, n.id;
END
$$;

-- A lexeme as the query for it and nothing else.
CREATE FUNCTION word_query(lexeme text) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('''' || replace(replace(lexeme, '\\', '\\\\'), '''', '''''') || '''')::tsquery
$$;

-- The passages that hold words of a query, by how rare the words are and how often they stand there:
-- BM25's idf, and ts_rank of one word, which saturates much as BM25's does with k1 = 0.65; long passages
-- count a little less.
-- Where words are known to be common, only the others find passages, and all count for the score.
CREATE FUNCTION rank_by_text(
    searched uuid[], query text, wanted jsonb, at_most integer, most_candidates integer
) RETURNS TABLE (collection_id uuid, passage_id uuid, score float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    parser text;
    total float8;
    words text[];
    finding text[];
    shares real[];
    conditions text := filter_conditions(searched, wanted);
    enough integer := 0;
BEGIN
    SELECT min(c.language), sum(c.passage_count) INTO parser, total FROM collections c
    WHERE c.id = ANY (searched) AND c.tenant = current_tenant();
    IF parser IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(w.word ORDER BY w.share, length(w.word) DESC),
           array_agg(w.share ORDER BY w.share, length(w.word) DESC),
           array_agg(w.word ORDER BY w.share) FILTER (WHERE w.heap <= most_candidates)
    INTO words, shares, finding
    FROM (
        SELECT q.word, coalesce(s.share, 0) AS share,
               sum(coalesce(s.share, 0) * total) OVER (ORDER BY coalesce(s.share, 0), q.word) AS heap
        FROM unnest(tsvector_to_array(to_tsvector(parser::regconfig, left(query, 5000)))) AS q (word)
        LEFT JOIN collection_words s
            ON cardinality(searched) = 1 AND s.collection_id = searched[1] AND s.word = q.word
        ORDER BY 2 LIMIT 32
    ) w;
    IF words IS NULL THEN
        RETURN;
    END IF;
    IF finding IS NULL THEN
        -- All are common. As many of the rarest as leave enough passages that hold them together.
        FOR n IN REVERSE least(cardinality(words), 6)..1 LOOP
            conditions := format(
                ' AND search_keys(p.collection_id, p.lexemes, p.tags, p.metadata) @> %L::bigint[] ',
                search_keys(searched[1], array_to_tsvector(words[1:n]), '{}', '{}'))
                || filter_conditions(searched, wanted);
            EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM passages p WHERE p.tenant = current_tenant() '
                || conditions || ' LIMIT $1) few' INTO enough USING at_most;
            EXIT WHEN enough = at_most;
        END LOOP;
    ELSE
        conditions := format(
            ' AND search_keys(p.collection_id, p.lexemes, p.tags, p.metadata) && %L::bigint[] ',
            ARRAY(SELECT k FROM unnest(searched) c,
                  unnest(search_keys(c, array_to_tsvector(finding), '{}', '{}')) k)) || conditions;
    END IF;
    RETURN QUERY EXECUTE format(
        'WITH word AS MATERIALIZED (
             SELECT w.word, w.share, word_query(w.word) AS q
             FROM unnest($1::text[], $2::real[]) AS w (word, share)
         ), candidate AS MATERIALIZED (
             SELECT p.collection_id, p.id, p.lexemes FROM passages p
             WHERE p.tenant = current_tenant() %s LIMIT $4
         ), hit AS MATERIALIZED (
             SELECT c.collection_id, c.id, w.word, w.share, ts_rank(c.lexemes, w.q) / (2 + ln(1 + length(c.lexemes))) AS tf
             FROM candidate c JOIN word w ON c.lexemes @@ w.q
         ), weight AS (
             SELECT word, ln(1 + ($3 - df + 0.5) / (df + 0.5)) AS idf
             FROM (SELECT word, greatest(max(share) * $3, count(*)) AS df FROM hit GROUP BY word) d
         )
         SELECT h.collection_id, h.id, sum(h.tf * i.idf)::float8 AS score
         FROM hit h JOIN weight i USING (word)
         GROUP BY h.collection_id, h.id ORDER BY score DESC, h.id LIMIT $5', conditions)
        USING words, shares, total, 4 * most_candidates, at_most;
END
$$;

-- Collections of every tenant whose vectors are of another model than this one.
CREATE FUNCTION collections_of_other_models(model text, dims integer)
RETURNS TABLE (collection_id uuid, tenant text, passage_count bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT c.id, c.tenant, c.passage_count FROM collections c
    WHERE (c.embedding_model, c.dimension) <> (model, dims) ORDER BY c.id
$$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION own_vectors_table, index_vectors, drop_own_table, count_matching, list_matching,
    nearest_one_by_one, nearest_by_index, rank_by_text, collections_of_other_models FROM PUBLIC;
GRANT EXECUTE ON FUNCTION own_vectors_table, index_vectors, drop_own_table, count_matching, list_matching,
    nearest_one_by_one, nearest_by_index, rank_by_text, collections_of_other_models TO memserver_app;
"""


def upgrade() -> None:
    """Create them, and give what is there its place."""
    op.execute(KEYS)
    op.execute(TABLES)
    for table in ("agent_collections", "collection_words", "vector_builds", "retired_vectors"):
        op.execute(f"SELECT keep_to_tenant('{table}')")
    op.execute(VECTORS)
    op.execute(FUNCTIONS)
    op.execute(SEARCH)
    op.execute(GRANTS)
