"""An index of what was said: blocks of text for literal searches, words with their counts, and vectors.

It is made in the background, after the turn, so that storing a message costs nothing more. What is newer than
the index is read from the messages themselves. A literal search reads all blocks of an agent: some dozens of
messages in one row are read ten times as fast as one by one, whatever is looked for and whatever extensions the
server has, so the trigram index goes.

A row-level security policy keeps the planner off an index of an expression. So, as before, searches are
functions of the owner's, which check the tenant themselves.
"""

from alembic import op

revision = "0017"
down_revision = "0016"

TABLES = """
-- How far an agent's history is indexed: all that was said before `indexed_to` is. `waiting`: more was said.
CREATE TABLE recall_index (
    agent_id    uuid PRIMARY KEY REFERENCES agents ON DELETE CASCADE,
    tenant      text NOT NULL,
    waiting     boolean NOT NULL DEFAULT true,
    since       timestamptz NOT NULL DEFAULT now(), -- it waits
    urgent      boolean NOT NULL DEFAULT false,     -- somebody has looked for what isn't indexed
    indexed_to  bigint NOT NULL DEFAULT 0,
    languages   text[] NOT NULL DEFAULT '{}',
    in_order    boolean NOT NULL DEFAULT true, -- the times of its messages are in the order of the positions
    last_time   timestamptz NOT NULL DEFAULT '-infinity',
    messages    bigint NOT NULL DEFAULT 0,     -- that are indexed
    counted     bigint NOT NULL DEFAULT 0,     -- of them when its common words were counted
    block       integer NOT NULL DEFAULT 0,    -- the one that is being filled
    block_holds integer NOT NULL DEFAULT 0,    -- messages
    block_bytes integer NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE INDEX recall_index_waiting ON recall_index (tenant, agent_id) WHERE waiting;

-- Some messages of an agent: their texts, folded, with U+0001 between, and who said each: u or a. A row fits a
-- page, unless a message is longer; it is not compressed, since it is read whole.
CREATE TABLE recall_blocks (
    agent_id   uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    block      integer NOT NULL,
    tenant     text NOT NULL,
    first_time timestamptz NOT NULL,
    last_time  timestamptz NOT NULL,
    positions  bigint[] NOT NULL,
    times      timestamptz[] NOT NULL,
    roles      text NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (agent_id, block)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recall_blocks ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE message_words (
    agent_id   uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    position   bigint NOT NULL,
    tenant     text NOT NULL,
    role       text NOT NULL,
    created_at timestamptz NOT NULL,
    lexemes    tsvector NOT NULL,
    PRIMARY KEY (agent_id, position)
);
CREATE INDEX message_words_by_key ON message_words
    USING gin (search_keys(agent_id, lexemes, '{}', '{}'));

-- Words that are common in a long history, with the share of the messages that hold them.
CREATE TABLE message_word_shares (
    agent_id uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    word     text NOT NULL,
    tenant   text NOT NULL,
    share    real NOT NULL,
    PRIMARY KEY (agent_id, word)
);
"""

# In the caller's rights: the policies hold.
INDEXING = r"""
-- Text as a block holds it, and as it is looked for there.
CREATE FUNCTION block_text(content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT translate(recall_fold($1), E'\u0001', E'\u0002') $$;

-- Indexes the messages at these positions, which follow what is indexed, and says that all before `until` is.
-- `seen`: the languages that occur in the history now; `spoken`: that of each message.
CREATE FUNCTION index_messages(
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
    JOIN messages m ON m.agent_id = agent AND m.position = f.place
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
    JOIN messages m ON m.agent_id = agent AND m.position = f.place;
    UPDATE recall_index SET indexed_to = until, languages = seen, in_order = state.in_order,
        last_time = state.last_time, messages = state.messages, block = state.block, block_holds = state.block_holds,
        block_bytes = state.block_bytes
    WHERE agent_id = agent;
    RETURN true;
END
$$;

-- Counts the common words of histories that have grown by half: those in one of a hundred messages.
CREATE FUNCTION count_common_words() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    state recall_index;
    nth bigint;
BEGIN
    FOR state IN SELECT * FROM recall_index
                 WHERE waiting AND messages >= 2000 AND messages >= 1.5 * counted ORDER BY agent_id
    LOOP
        nth := state.messages / 10000 + 1;
        DELETE FROM message_word_shares WHERE agent_id = state.agent_id;
        INSERT INTO message_word_shares
        SELECT state.agent_id, w.word, state.tenant, count(*)::real / w.looked_at
        FROM (SELECT lexemes, count(*) OVER () AS looked_at FROM message_words
              WHERE agent_id = state.agent_id AND abs(hashint8extended(position, 0) % nth) = 0) looked_at,
             LATERAL (SELECT word, looked_at FROM unnest(tsvector_to_array(lexemes)) AS u (word)) w
        GROUP BY w.word, w.looked_at HAVING count(*) >= 0.01 * w.looked_at;
        UPDATE recall_index SET counted = state.messages WHERE agent_id = state.agent_id;
    END LOOP;
END
$$;

-- Has what an agent said indexed, soon: one job for all of a tenant's agents. There may be none though the agent
-- waits: one that has failed too often.
CREATE FUNCTION request_indexing(agent uuid, whose text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM recall_index WHERE agent_id = agent AND waiting) THEN
        INSERT INTO recall_index (agent_id, tenant) VALUES (agent, whose)
        ON CONFLICT (agent_id) DO UPDATE SET waiting = true, urgent = false, since = now();
    END IF;
    IF NOT EXISTS (SELECT 1 FROM procrastinate_jobs
                   WHERE queueing_lock = 'index_messages:' || whose AND status = 'todo') THEN
        PERFORM defer_job('index_messages', whose, '{}', whose, -10, now() + interval '5 seconds');
    END IF;
END
$$;

CREATE FUNCTION defer_indexing() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM request_indexing(NEW.agent_id, NEW.tenant);
    RETURN NULL;
END
$$;
DROP TRIGGER recall_switched_on ON agents;
DROP TRIGGER turn_ended ON agent_state;
DROP FUNCTION defer_embedding;
CREATE TRIGGER turn_ended AFTER UPDATE OF done_turn ON agent_state FOR EACH ROW
    WHEN (NEW.done_turn > OLD.done_turn) EXECUTE FUNCTION defer_indexing();
"""

SEARCH = r"""
DROP FUNCTION recall_search;
DROP FUNCTION recall_way;
DROP FUNCTION recall_use_trigrams;
DROP INDEX IF EXISTS messages_trigrams;

-- A page of an agent's messages: their positions in order, and how many match in all. Those that hold a
-- text are counted up to `count_to`; `exact` says whether there are no more. Of another tenant's agent there
-- is nothing.
CREATE FUNCTION recall_search(
    agent uuid, term text, any_case boolean, since timestamptz, until timestamptz, roles text[],
    before bigint, newest_first boolean, after_time timestamptz, after_position bigint,
    skip bigint, take bigint, count_to bigint
) RETURNS TABLE (positions bigint[], total bigint, exact boolean, further boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 1 SET search_path FROM CURRENT
    SET jit = off SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off
    SET max_parallel_workers_per_gather = 0 AS $$ -- all is read in order, until enough is found
DECLARE
    said bigint;
    state recall_index;
    all_of_them bigint;
    most bigint;
    direction text := CASE WHEN newest_first THEN 'DESC' ELSE 'ASC' END;
    conditions text := '';
    newest text;
    older text;
    found text;
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
    SELECT * INTO state FROM recall_index WHERE agent_id = agent;

    IF NOT roles @> ARRAY['user', 'assistant'] THEN
        conditions := ' AND m.role = ANY ($2)';
    END IF;
    IF since IS NOT NULL THEN
        conditions := conditions || ' AND m.created_at >= $3';
    END IF;
    IF until IS NOT NULL THEN
        conditions := conditions || ' AND m.created_at < $4';
    END IF;
    IF before IS NOT NULL THEN
        conditions := conditions || ' AND m.position < $5';
    END IF;
    IF after_time IS NOT NULL THEN
        conditions := conditions || format(' AND (m.created_at, m.position) %s ($6, $7)',
                                           CASE WHEN newest_first THEN '<' ELSE '>' END);
    END IF;

    found := format(
        'SELECT m.created_at, m.position FROM messages m
         WHERE m.agent_id = $1 AND m.role <> ''system'' AND m.content <> '''' %s
         ORDER BY m.created_at %2$s, m.position %2$s LIMIT $9', conditions, direction);
    IF term IS NOT NULL THEN
        newest := format(
            'SELECT m.created_at, m.position FROM messages m
             WHERE m.agent_id = $1 AND m.role <> ''system'' AND m.content <> '''' AND m.position >= $14
               AND strpos(%s) > 0 %s ORDER BY m.position DESC',
            CASE WHEN any_case THEN 'block_text(m.content), block_text($8)' ELSE 'm.content, $8' END, conditions);
        -- A block's texts are folded; that the case is right too is seen in the message itself.
        older := format(
            'SELECT m.created_at, m.position FROM recall_blocks b CROSS JOIN LATERAL (
                 SELECT b.times[t.n] AS created_at, b.positions[t.n] AS position,
                        CASE substr(b.roles, t.n::integer, 1) WHEN ''u'' THEN ''user'' ELSE ''assistant'' END AS role
                 FROM unnest(string_to_array(b.body, E''\u0001'')) WITH ORDINALITY AS t (text, n)
                 WHERE strpos(t.text, block_text($8)) > 0) m
             WHERE b.agent_id = $1 AND strpos(b.body, block_text($8)) > 0 %s %s %s ORDER BY b.block DESC',
            conditions,
            CASE WHEN NOT any_case THEN 'AND EXISTS (SELECT 1 FROM messages x WHERE x.agent_id = $1
                AND x.position = m.position AND strpos(x.content, $8) > 0)' ELSE '' END,
            CASE WHEN since IS NULL THEN '' ELSE ' AND b.last_time >= $3' END
            || CASE WHEN until IS NULL THEN '' ELSE ' AND b.first_time < $4' END);
        found := format('(%s) UNION ALL (%s)', newest, older);
        -- Where times are in the order of positions the newest are enough, to the end of a block.
        IF newest_first AND coalesce(state.in_order, true) THEN
            found := found || ' LIMIT $9 + 64';
        END IF;
    END IF;

    RETURN QUERY EXECUTE format(
        'WITH found AS MATERIALIZED (%1$s),
              counted AS (SELECT count(*) AS number FROM found)
         SELECT array(SELECT position FROM found ORDER BY created_at %2$s, position %2$s
                      OFFSET $10 LIMIT $11),
                coalesce($13, least(number, $12)), $13 IS NOT NULL OR number <= $12,
                $11 > 0 AND number > $10 + $11
         FROM counted', found, direction)
    USING agent, roles, since, until, before, after_time, after_position, term, most, skip, take,
          most - 1, all_of_them, coalesce(state.indexed_to, 0);
END
$$;

-- An agent's messages that hold words of a query, in any order and form, best first, weighed as by
-- rank_by_text. Where all words are common, a message has to hold the rarest together. Of what is newer than the
-- index the last hundred messages are lexed on the spot.
CREATE FUNCTION rank_messages(
    agent uuid, query text, since timestamptz, until timestamptz, said_by text[], before bigint,
    at_most integer, most_candidates integer
) RETURNS TABLE (found_at bigint, score float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
    SET jit = off SET enable_seqscan = off SET max_parallel_workers_per_gather = 0 AS $$
DECLARE
    state recall_index;
    total float8;
    terms bigint[];
    words text[];
    shares real[];
    finding text[];
    enough integer := 0;
    narrow boolean := false;
    keys text;
BEGIN
    SELECT c.user_said + c.assistant_said INTO total FROM recall_counts c
    WHERE c.agent_id = agent AND c.tenant = current_setting('memserver.tenant', true);
    IF coalesce(total, 0) = 0 THEN
        RETURN;
    END IF;
    SELECT * INTO state FROM recall_index i WHERE i.agent_id = agent;
    state.languages := state.languages || 'english'::text;
    SELECT array_agg(w.word ORDER BY w.share, length(w.word) DESC, w.word),
           array_agg(w.share ORDER BY w.share, length(w.word) DESC, w.word),
           array_agg(w.term ORDER BY w.share, length(w.word) DESC, w.word),
           array_agg(w.word ORDER BY w.share, length(w.word) DESC, w.word)
               FILTER (WHERE w.heap <= most_candidates)
    INTO words, shares, terms, finding
    FROM (
        SELECT k.word, k.term, k.share,
               sum(k.share * total) OVER (ORDER BY k.share, length(k.word) DESC, k.word) AS heap
        FROM (SELECT q.word, q.term,
                     greatest(coalesce(s.share, 0), CASE WHEN q.empty THEN 0.9 ELSE 0 END) AS share
              FROM query_terms(state.languages, left(query, 5000)) q
              LEFT JOIN message_word_shares s ON s.agent_id = agent AND s.word = q.word) k
        ORDER BY k.share, length(k.word) DESC LIMIT 48
    ) w;
    IF words IS NULL THEN
        RETURN;
    END IF;
    IF since IS NOT NULL OR until IS NOT NULL THEN
        SELECT count(*) <= most_candidates INTO narrow FROM (
            SELECT 1 FROM messages m WHERE m.agent_id = agent AND m.role <> 'system' AND m.content <> ''
            AND m.created_at >= coalesce(since, '-infinity') AND m.created_at < coalesce(until, 'infinity')
            LIMIT most_candidates + 1) few;
    END IF;
    IF narrow THEN
        keys := '(SELECT w.* FROM messages m JOIN message_words w USING (agent_id, position)
                  WHERE m.agent_id = $1 AND m.role <> ''system'' AND m.content <> ''''
                    AND m.created_at >= coalesce($2, ''-infinity'') AND m.created_at < coalesce($3, ''infinity''))';
    ELSIF finding IS NOT NULL THEN
        keys := format('(SELECT * FROM message_words WHERE search_keys(agent_id, lexemes, ''{}'', ''{}'') && %L::bigint[])',
                       search_keys(agent, array_to_tsvector(finding), '{}', '{}'));
    ELSE
        FOR n IN REVERSE least(cardinality(words), 6)..1 LOOP
            keys := format('(SELECT * FROM message_words WHERE search_keys(agent_id, lexemes, ''{}'', ''{}'') @> %L::bigint[])',
                           search_keys(agent, array_to_tsvector(words[1:n]), '{}', '{}'));
            EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %s w WHERE w.agent_id = $1 LIMIT $2) few', keys)
                INTO enough USING agent, at_most;
            EXIT WHEN enough = at_most;
        END LOOP;
    END IF;
    RETURN QUERY EXECUTE format(
        'WITH word AS MATERIALIZED (
             SELECT w.word, w.share, w.term, word_query(w.word) AS q
             FROM unnest($6::text[], $7::real[], $13::bigint[]) AS w (word, share, term)
         ), candidate AS MATERIALIZED (
             (SELECT c.position, c.lexemes FROM %s c
              WHERE c.agent_id = $1 AND c.role = ANY ($4) AND c.position < coalesce($5, 9223372036854775807)
                AND c.created_at >= coalesce($2, ''-infinity'') AND c.created_at < coalesce($3, ''infinity'')
              LIMIT $9)
             UNION ALL
             (SELECT m.position, lexemes_of($12, left(m.content, 2000)) || lexemes_of(''english'', left(m.content, 2000))
              FROM messages m
              WHERE m.agent_id = $1 AND m.role = ANY ($4) AND m.content <> '''' AND m.position >= $11
                AND m.position < coalesce($5, 9223372036854775807)
                AND m.created_at >= coalesce($2, ''-infinity'') AND m.created_at < coalesce($3, ''infinity'')
              ORDER BY m.position DESC LIMIT 100)
         ), hit AS MATERIALIZED (
             SELECT c.position, w.word, w.share, w.term, ts_rank(c.lexemes, w.q) / (2 + ln(1 + length(c.lexemes))) AS tf
             FROM candidate c JOIN word w ON c.lexemes @@ w.q
         ), weight AS (
             SELECT word, ln(1 + ($8 - df + 0.5) / (df + 0.5)) AS idf
             FROM (SELECT word, max(least(greatest(max(share) * $8, count(*)), $8)) OVER (PARTITION BY term) AS df
                   FROM hit GROUP BY word, term) d
         )
         SELECT h.position, sum(h.tf * i.idf)::float8 AS score FROM hit h JOIN weight i USING (word)
         GROUP BY h.position ORDER BY score DESC, h.position DESC LIMIT $10', keys)
        USING agent, since, until, said_by, before, words, shares, greatest(total, 1),
              4 * most_candidates, at_most, coalesce(state.indexed_to, 0), state.languages[1],
              terms;
END
$$;
REVOKE ALL ON FUNCTION recall_search, rank_messages FROM PUBLIC;
GRANT EXECUTE ON FUNCTION recall_search, rank_messages TO memserver_app;
"""

# All messages have vectors now, so adding one has to be cheap: half of what pgvector's defaults cost, and
# .985 of the ten nearest among 60,000. Few agents are so large that the index is used at all.
VECTORS = """
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
                    WITH (m = 12, ef_construction = 40)', found_name || '_hnsw', found_name);
    RETURN found_name;
END
$$;
"""

# Temporary tables come last, as for the owner's other functions (see 0015).
OWN_NAMES_FIRST = """
DO $$
DECLARE
    ours text := (SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
                  FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place)
                  WHERE name !~ '^pg_temp');
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['recall_search', 'rank_messages', 'message_vectors_table'] LOOP
        EXECUTE format('ALTER FUNCTION %I SET search_path = %s, pg_temp', name, ours);
    END LOOP;
END
$$;
"""

# The option goes; what was said so far is indexed by the jobs.
BEFORE = """
UPDATE agents SET options = options - 'embed_recall' WHERE options ? 'embed_recall';
DELETE FROM procrastinate_jobs WHERE task_name = 'embed_recall' AND status = 'todo';
INSERT INTO recall_index (agent_id, tenant)
    SELECT agent_id, tenant FROM agent_state WHERE done_turn > 0;
SELECT defer_job('index_messages', tenant, '{}', tenant, -10, NULL)
    FROM (SELECT DISTINCT tenant FROM recall_index) waiting;
"""


def upgrade() -> None:
    """Make the tables and functions, and queue the indexing of what there is."""
    for part in (TABLES, INDEXING, SEARCH, VECTORS, OWN_NAMES_FIRST):
        op.get_bind().exec_driver_sql(part.replace("%", "%%"))
    for table in ("recall_index", "recall_blocks", "message_words", "message_word_shares"):
        op.execute(f"SELECT keep_to_tenant('{table}')")
    op.get_bind().exec_driver_sql(BEFORE)
