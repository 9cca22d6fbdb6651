"""Recall storage that is searched quickly at every size: one index, counters, trigrams where there are any.

A row-level security policy keeps the planner off trigrams, since LIKE is not leakproof. So a search is a
function of the owner's, which checks the tenant itself and gives nothing away but positions and a count.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

# A search reads this index alone until it has to look at texts.
INDEX = """
CREATE INDEX messages_said ON messages (agent_id, created_at, position) INCLUDE (role)
    WHERE role <> 'system' AND content <> '';
DROP INDEX messages_by_time;
"""

# How many messages there are to be found, kept by a trigger, whoever writes them.
COUNTS = """
CREATE TABLE recall_counts (
    agent_id       uuid PRIMARY KEY REFERENCES agents ON DELETE CASCADE,
    tenant         text NOT NULL,
    user_said      bigint NOT NULL,
    assistant_said bigint NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION count_said() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO recall_counts AS c (agent_id, tenant, user_said, assistant_said)
        SELECT agent_id, tenant, count(*) FILTER (WHERE role = 'user'),
               count(*) FILTER (WHERE role = 'assistant')
        FROM changed WHERE role <> 'system' AND content <> ''
        GROUP BY agent_id, tenant ORDER BY agent_id
        ON CONFLICT (agent_id) DO UPDATE SET user_said = c.user_said + excluded.user_said,
            assistant_said = c.assistant_said + excluded.assistant_said;
    ELSE
        UPDATE recall_counts c SET user_said = c.user_said - gone.users,
            assistant_said = c.assistant_said - gone.assistants
        FROM (SELECT agent_id, count(*) FILTER (WHERE role = 'user') AS users,
                     count(*) FILTER (WHERE role = 'assistant') AS assistants
              FROM changed WHERE role <> 'system' AND content <> '' GROUP BY agent_id) gone
        WHERE c.agent_id = gone.agent_id;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER messages_counted AFTER INSERT ON messages
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_said();
CREATE TRIGGER messages_uncounted AFTER DELETE ON messages
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_said();

INSERT INTO recall_counts
SELECT agent_id, tenant, count(*) FILTER (WHERE role = 'user'),
       count(*) FILTER (WHERE role = 'assistant')
FROM messages WHERE role <> 'system' AND content <> '' GROUP BY agent_id, tenant;
"""

# Case is Unicode's simple mapping, character by character, whatever the database's locale is.
FOLD = """
DO $$
DECLARE
    best text;
    body text;
BEGIN
    SELECT collname INTO best FROM pg_collation
    WHERE collname IN ('pg_c_utf8', 'C.utf8', 'C.UTF-8', 'und-x-icu', 'default')
      AND collencoding IN (-1, pg_char_to_encoding('UTF8'))
    ORDER BY array_position(ARRAY['pg_c_utf8', 'C.utf8', 'C.UTF-8', 'und-x-icu', 'default'],
                            collname::text)
    LIMIT 1;
    body := format('lower($1 COLLATE %I) COLLATE "C"', best);
    IF best <> 'pg_c_utf8' THEN -- the C library is slow: spare it where it would change nothing
        body := 'CASE WHEN octet_length($1) = char_length($1) THEN lower($1 COLLATE "C") COLLATE "C" '
                || 'ELSE ' || body || ' END';
    END IF;
    -- Not STRICT: Postgres would not inline it then.
    EXECUTE format('CREATE FUNCTION recall_fold(text) RETURNS text LANGUAGE sql IMMUTABLE '
                   'PARALLEL SAFE AS %L', 'SELECT ' || body);
END
$$;
"""

TRIGRAMS = """
-- Makes the trigram index where the database has pg_trgm or lets us have it; answers whether it is there.
CREATE FUNCTION recall_use_trigrams() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    place text;
BEGIN
    IF to_regclass('messages_trigrams') IS NOT NULL THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm') THEN
        BEGIN
            CREATE EXTENSION IF NOT EXISTS pg_trgm;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL;
        END;
    END IF;
    SELECT n.nspname INTO place
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm';
    IF place IS NULL THEN
        RETURN false;
    END IF;
    -- New messages wait in a list that each search reads and that somebody's turn has to empty: without
    -- it storing one costs three times as much, and a short one costs searches next to nothing.
    EXECUTE format('CREATE INDEX messages_trigrams ON messages
                    USING gin (recall_fold(content) %I.gin_trgm_ops) WITH (gin_pending_list_limit = 256)', place);
    RETURN true;
END
$$;
SELECT recall_use_trigrams();

-- How to find a term among `to_read` messages of an agent, of which the first `count_to` that match
-- are enough: 'reading' their texts in the order of time; 'trigrams', each candidate of the whole
-- table looked at; or 'both', the candidates met with the agent's own rows first. How common the
-- term is, a sample of the table tells. The costs are microseconds as measured: a text that is read,
-- a posting, a candidate that is looked at, one of the agent's rows.
CREATE FUNCTION recall_way(term text, to_read bigint, count_to bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    sampled_pages CONSTANT integer := 50;
    patterns text[];
    pages double precision;
    sampled bigint;
    hits bigint;
    share double precision;
    candidates double precision;
    reading double precision;
    alone double precision;
    met double precision;
BEGIN
    IF to_read <= 2000 OR term !~ '[[:alnum:]]{3}' OR NOT EXISTS (
        SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('messages_trigrams') AND indisvalid)
    THEN
        RETURN 'reading';
    END IF;
    SELECT array_agg('%' || substr(word[1], place, 3) || '%') INTO patterns
    FROM (SELECT word, place FROM regexp_matches(recall_fold(term), '[[:alnum:]]{3,}', 'g') word,
                 generate_series(1, length(word[1]) - 2) place LIMIT 16) grams;
    pages := greatest(pg_relation_size('messages') / current_setting('block_size')::float, 1);
    SELECT count(*), count(*) FILTER (WHERE recall_fold(content) LIKE ALL (patterns))
    INTO sampled, hits FROM messages TABLESAMPLE SYSTEM (least(100, 100 * sampled_pages / pages));
    share := (hits + 0.5) / (sampled + 1);
    candidates := share * sampled * greatest(pages / sampled_pages, 1);
    reading := 0.8 * least(to_read, count_to / share);
    alone := (0.1 + 1.5) * candidates;
    met := 0.1 * candidates + 0.06 * to_read + 2.0 * share * to_read;
    RETURN CASE WHEN reading <= least(alone, met) THEN 'reading'
                WHEN alone <= met THEN 'trigrams' ELSE 'both' END;
END
$$;
"""

SEARCH = """
-- A page of an agent's messages: their positions in order, and how many match in all. Texts that
-- are read one by one are counted up to `count_to`; `exact` says whether there are no more. Of
-- another tenant's agent there is nothing.
CREATE FUNCTION recall_search(
    agent uuid, term text, any_case boolean, since timestamptz, until timestamptz, roles text[],
    before bigint, newest_first boolean, after_time timestamptz, after_position bigint,
    skip bigint, take bigint, count_to bigint
) RETURNS TABLE (positions bigint[], total bigint, exact boolean, further boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 1 SET search_path FROM CURRENT
    SET jit = off SET enable_sort = on SET enable_bitmapscan = on AS $$
DECLARE
    said bigint;
    pattern text := '%' || replace(replace(replace(term, '\\', '\\\\'), '%', '\\%'), '_', '\\_') || '%';
    all_of_them bigint;
    way text := 'reading';
    source text := 'messages';
    ending text := '';
    direction text := CASE WHEN newest_first THEN 'DESC' ELSE 'ASC' END;
    condition text := 'm.agent_id = $1 AND m.role <> ''system'' AND m.content <> ''''';
    most bigint;
BEGIN
    SELECT CASE WHEN 'user' = ANY (roles) THEN coalesce(c.user_said, 0) ELSE 0 END
         + CASE WHEN 'assistant' = ANY (roles) THEN coalesce(c.assistant_said, 0) ELSE 0 END
    INTO said FROM agents a LEFT JOIN recall_counts c ON c.agent_id = a.id
    WHERE a.id = agent AND a.tenant = current_setting('memserver.tenant', true);
    IF coalesce(said, 0) = 0 THEN
        RETURN QUERY SELECT '{}'::bigint[], 0::bigint, true, false;
        RETURN;
    END IF;
    IF skip >= said OR take <= 0 THEN -- no such page: only its count is wanted
        skip := 0;
        take := 0;
    END IF;
    IF term IS NULL AND since IS NULL AND until IS NULL AND before IS NULL THEN
        all_of_them := said;
        count_to := 0;
    END IF;
    most := greatest(count_to, skip + take) + 1;

    IF NOT roles @> ARRAY['user', 'assistant'] THEN
        condition := condition || ' AND m.role = ANY ($2)';
    END IF;
    IF since IS NOT NULL THEN
        condition := condition || ' AND m.created_at >= $3';
    END IF;
    IF until IS NOT NULL THEN
        condition := condition || ' AND m.created_at < $4';
    END IF;
    IF before IS NOT NULL THEN
        condition := condition || ' AND m.position < $5';
    END IF;
    IF after_time IS NOT NULL THEN
        condition := condition || format(' AND (m.created_at, m.position) %s ($6, $7)',
                                         CASE WHEN newest_first THEN '<' ELSE '>' END);
    END IF;

    IF term IS NOT NULL THEN
        IF since IS NOT NULL OR until IS NOT NULL THEN -- how much of it lies in the range
            EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM messages m WHERE ' || condition
                    || ' LIMIT $8) c' INTO said
            USING agent, roles, since, until, before, after_time, after_position, least(said, 20000);
        END IF;
        way := recall_way(term, said, most);
        IF any_case OR way <> 'reading' THEN
            condition := condition || ' AND recall_fold(m.content) LIKE recall_fold($8)';
        END IF;
        IF NOT any_case THEN
            condition := condition || ' AND m.content LIKE $8';
        END IF;
    END IF;
    IF way = 'reading' THEN -- in order, to stop where enough is found
        PERFORM set_config(name, 'off', true)
        FROM unnest('{enable_sort,enable_bitmapscan}'::text[]) name;
        ending := format('ORDER BY m.created_at %1$s, m.position %1$s LIMIT $9', direction);
    ELSIF way = 'trigrams' THEN
        source := '(SELECT * FROM messages m WHERE recall_fold(m.content) LIKE recall_fold($8) OFFSET 0)';
    END IF;

    RETURN QUERY EXECUTE format(
        'WITH found AS MATERIALIZED (SELECT m.created_at, m.position FROM %1$s m WHERE %2$s %3$s),
              counted AS (SELECT count(*) AS number FROM found)
         SELECT array(SELECT position FROM found ORDER BY created_at %4$s, position %4$s
                      OFFSET $10 LIMIT $11),
                coalesce($13, least(number, $12)), $13 IS NOT NULL OR number <= $12,
                $11 > 0 AND number > $10 + $11
         FROM counted', source, condition, ending, direction)
    USING agent, roles, since, until, before, after_time, after_position, pattern, most, skip, take,
          CASE WHEN way = 'reading' THEN most - 1 ELSE 9223372036854775807 END, all_of_them;
END
$$;
REVOKE ALL ON FUNCTION recall_search, recall_way, recall_use_trigrams FROM PUBLIC;
GRANT EXECUTE ON FUNCTION recall_search TO memserver_app;
"""

# Messages by meaning, for agents whose option embed_recall is on.
MEANING = """
-- How far an agent's history has vectors of a model: all that was said before `embedded_to` has.
CREATE TABLE recall_embeddings (
    agent_id    uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    model       text NOT NULL,
    dimension   integer NOT NULL,
    tenant      text NOT NULL,
    table_name  text NOT NULL,
    embedded_to bigint NOT NULL DEFAULT 0,
    messages    bigint NOT NULL DEFAULT 0,
    started_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, model, dimension)
);

-- The table that holds a model's vectors of messages; made when the model is first seen. A long
-- message has several parts. Partitioned by agent, so that an index holds few others' vectors.
CREATE FUNCTION message_vectors_table(model text, dims integer) RETURNS text
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
    EXECUTE format('CREATE INDEX %I ON %I USING hnsw (embedding halfvec_cosine_ops)',
                   found_name || '_hnsw', found_name);
    RETURN found_name;
END
$$;
REVOKE ALL ON FUNCTION message_vectors_table FROM PUBLIC;
GRANT EXECUTE ON FUNCTION message_vectors_table TO memserver_app;

-- Has an agent's new messages embedded: when the option is switched on, and whenever a turn has ended.
CREATE FUNCTION defer_embedding() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_TABLE_NAME = 'agents' THEN
        PERFORM defer_job('embed_recall', NEW.tenant, jsonb_build_object('agent', NEW.id),
                          NEW.id::text, -10, NULL);
    ELSE
        PERFORM defer_job('embed_recall', NEW.tenant, jsonb_build_object('agent', NEW.agent_id),
                          NEW.agent_id::text, -10, NULL)
        FROM agents a WHERE a.id = NEW.agent_id AND a.options -> 'embed_recall' = 'true';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER recall_switched_on AFTER UPDATE OF options ON agents FOR EACH ROW
    WHEN (NEW.options -> 'embed_recall' = 'true'
          AND OLD.options -> 'embed_recall' IS DISTINCT FROM 'true')
    EXECUTE FUNCTION defer_embedding();
CREATE TRIGGER turn_ended AFTER UPDATE OF done_turn ON agent_state FOR EACH ROW
    WHEN (NEW.done_turn > OLD.done_turn) EXECUTE FUNCTION defer_embedding();
"""


def upgrade() -> None:
    """Count what there is, and make the indexes: a pass or two over the messages."""
    op.execute(INDEX)
    op.execute(COUNTS)
    op.execute("SELECT keep_to_tenant('recall_counts')")
    for part in (FOLD, TRIGRAMS, SEARCH, MEANING):
        op.get_bind().exec_driver_sql(part.replace("%", "%%"))
    op.execute("SELECT keep_to_tenant('recall_embeddings')")
