"""How much of a query's words a message holds, so that words and meaning are weighed against each other.

`rank_messages` is left to older servers.
"""

from alembic import op

revision = "0034"
down_revision = "0033"
compatible_with = "0032"

RANK = """
-- An agent's messages that hold words of a query, in any order and form, best first, weighed as by
-- rank_by_text. Where all words are common, a message has to hold the rarest together. Of what is newer than the
-- index the last hundred messages are lexed on the spot. `held` is the weight of a message's words as a share of what it would be
-- of ten words that have every word of the query once; of fewer words it may be more. A query of common words alone is held for less: it
-- counts as one word that stands in a single message.
CREATE FUNCTION weigh_messages(
    agent uuid, query text, since timestamptz, until timestamptz, said_by text[], before bigint,
    at_most integer, most_candidates integer
) RETURNS TABLE (found_at bigint, held float8)
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
             SELECT c.position, w.word, ts_rank(c.lexemes, w.q) / (2 + ln(1 + length(c.lexemes))) AS tf
             FROM candidate c JOIN word w ON c.lexemes @@ w.q
         ), weight AS (
             SELECT word, term, ln(1 + ($8 - df + 0.5) / (df + 0.5)) AS idf
             FROM (SELECT w.word, w.term, max(least(greatest(w.share * $8, coalesce(d.hits, 0)), $8)) OVER (PARTITION BY w.term) AS df
                   FROM word w LEFT JOIN (SELECT word, count(*) AS hits FROM hit GROUP BY word) d USING (word)) f
         ), whole AS (
             SELECT greatest(sum(idf), ln(1 + ($8 - 0.5) / 1.5)) * ts_rank(''a:1'', ''a'') / (2 + ln(11)) AS score
             FROM (SELECT max(idf) AS idf FROM weight GROUP BY term) t
         )
         SELECT h.position, (sum(h.tf * i.idf) / (SELECT score FROM whole))::float8 AS held
         FROM hit h JOIN weight i USING (word)
         GROUP BY h.position ORDER BY sum(h.tf * i.idf) DESC, h.position DESC LIMIT $10', keys)
        USING agent, since, until, said_by, before, words, shares, greatest(total, 1),
              4 * most_candidates, at_most, coalesce(state.indexed_to, 0), state.languages[1],
              terms;
END
$$;
REVOKE ALL ON FUNCTION weigh_messages FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weigh_messages TO memserver_app;
"""

# Temporary tables come last, as for the owner's other functions (see 0015).
OWN_NAMES_FIRST = """
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION weigh_messages SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END
$$;
"""


def upgrade() -> None:
    """Make the function."""
    op.execute(RANK)
    op.execute(OWN_NAMES_FIRST)
