"""How the server did in each minute that is over is kept for a day, so that a look at the load reads no steps twice.

An older server doesn't write the table; it reads it through `operations`, as a newer one does.
"""

from alembic import op

revision = "0033"
down_revision = "0032"
compatible_with = "0032"

CREATE = """
CREATE TABLE operation_minutes (
    minute   timestamptz PRIMARY KEY,
    turns    bigint NOT NULL,
    steps    bigint NOT NULL,
    p50      double precision,
    p95      double precision,
    longest  double precision,
    buckets  integer[] NOT NULL, -- of turns' seconds, each 2 % wide
    counts   bigint[] NOT NULL,
    errors   jsonb NOT NULL, -- how often by code
    memory   double precision NOT NULL,
    queue    double precision NOT NULL,
    asking   double precision NOT NULL,
    tools    double precision NOT NULL,
    database double precision NOT NULL,
    other    double precision NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens     bigint NOT NULL
);

-- The minutes from one on to before another, as their steps say.
CREATE FUNCTION minutes_of_steps(since timestamptz, until timestamptz) RETURNS SETOF operation_minutes
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH recent AS (
        SELECT date_trunc('minute', at) AS minute, seconds, error, memory, queue, asking, tools, database, other,
               prompt_tokens, completion_tokens, cached_tokens
        FROM turn_steps WHERE at >= since AND at < until
    ), bucket AS (
        SELECT minute, round(50 * ln(greatest(seconds, 0.0001)))::integer AS bucket, count(*) AS turns
        FROM recent WHERE seconds IS NOT NULL GROUP BY 1, 2
    ), buckets AS (
        SELECT minute, array_agg(bucket) AS buckets, array_agg(turns) AS counts FROM bucket GROUP BY minute
    ), failed AS (
        SELECT minute, jsonb_object_agg(error, times) AS errors
        FROM (SELECT minute, error, count(*) AS times FROM recent WHERE error IS NOT NULL GROUP BY 1, 2) e
        GROUP BY minute
    ), sums AS (
        SELECT minute, count(seconds) AS turns, count(*) AS steps, max(seconds)::float8 AS longest,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY seconds) AS p,
               sum(memory::float8) AS memory, sum(queue::float8) AS queue, sum(asking::float8) AS asking,
               sum(tools::float8) AS tools, sum(database::float8) AS database, sum(other::float8) AS other,
               sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
               sum(cached_tokens) AS cached_tokens
        FROM recent GROUP BY minute
    )
    SELECT m, coalesce(s.turns, 0), coalesce(s.steps, 0), s.p[1], s.p[2], s.longest, coalesce(b.buckets, '{}'),
           coalesce(b.counts, '{}'), coalesce(f.errors, '{}'), coalesce(s.memory, 0), coalesce(s.queue, 0),
           coalesce(s.asking, 0), coalesce(s.tools, 0), coalesce(s.database, 0), coalesce(s.other, 0),
           coalesce(s.prompt_tokens, 0), coalesce(s.completion_tokens, 0), coalesce(s.cached_tokens, 0)
    FROM generate_series(since, until - interval '1 minute', interval '1 minute') m
    LEFT JOIN sums s ON s.minute = m LEFT JOIN buckets b ON b.minute = m LEFT JOIN failed f ON f.minute = m
$$;

-- The first of the last so many minutes that isn't kept; the one that isn't over never is.
CREATE FUNCTION first_open_minute(minutes integer) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT min(m) FROM generate_series(
        date_trunc('minute', now()) - make_interval(mins => minutes - 1), date_trunc('minute', now()),
        interval '1 minute') m
    WHERE NOT EXISTS (SELECT FROM operation_minutes o WHERE o.minute = m)
$$;

-- Keeps those of the last so many minutes that have been over for two minutes: a call that runs outside is stored with the
-- minute in which it began. Says how many it were.
CREATE FUNCTION keep_minutes(minutes integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM operation_minutes WHERE minute < now() - interval '25 hours';
    WITH kept AS (
        INSERT INTO operation_minutes
        SELECT * FROM minutes_of_steps(first_open_minute(minutes), date_trunc('minute', now()) - interval '2 minutes')
        ORDER BY minute -- as another who does the same
        ON CONFLICT DO NOTHING RETURNING 1
    )
    SELECT count(*) FROM kept
$$;

CREATE OR REPLACE FUNCTION operations(minutes integer) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off AS $$
    WITH open AS MATERIALIZED (
        SELECT first_open_minute(minutes) AS minute, date_trunc('minute', now()) AS last
    ), by_minute AS MATERIALIZED (
        SELECT o.* FROM operation_minutes o, open
        WHERE o.minute >= open.last - make_interval(mins => minutes - 1) AND o.minute < open.minute
        UNION ALL
        SELECT m.* FROM open, minutes_of_steps(open.minute, open.last + interval '1 minute') m
    ), bucket AS (
        SELECT b.bucket, sum(b.turns) AS turns
        FROM by_minute, unnest(buckets, counts) AS b (bucket, turns) GROUP BY b.bucket
    ), up_to AS (
        SELECT exp(bucket / 50.0) AS seconds, sum(turns) OVER (ORDER BY bucket) / sum(turns) OVER () AS share
        FROM bucket
    ), longest AS (SELECT max(longest) AS seconds FROM by_minute)
    SELECT jsonb_build_object(
        'at', now(),
        'minutes', (
            SELECT jsonb_agg(jsonb_build_object(
                'at', minute, 'turns', turns, 'steps', steps,
                'errors', (SELECT coalesce(sum(value::bigint), 0) FROM jsonb_each_text(b.errors)),
                'p50', p50, 'p95', p95, 'prompt_tokens', prompt_tokens,
                'completion_tokens', completion_tokens, 'cached_tokens', cached_tokens) ORDER BY minute)
            FROM by_minute b),
        'turn_seconds', (
            SELECT jsonb_build_object(
                'p50', least(min(u.seconds) FILTER (WHERE share >= 0.5), max(l.seconds)),
                'p95', least(min(u.seconds) FILTER (WHERE share >= 0.95), max(l.seconds)),
                'p99', least(min(u.seconds) FILTER (WHERE share >= 0.99), max(l.seconds)),
                'max', max(l.seconds))
            FROM longest l LEFT JOIN up_to u ON true),
        'step_seconds', (
            SELECT jsonb_build_object(
                'memory', sum(memory) / n, 'queue', sum(queue) / n, 'model', sum(asking) / n,
                'tools', sum(tools) / n, 'database', sum(database) / n, 'other', sum(other) / n)
            FROM by_minute, (SELECT nullif(sum(steps), 0)::float8 AS n FROM by_minute) s GROUP BY n),
        'errors', (
            SELECT coalesce(jsonb_object_agg(key, times), '{}')
            FROM (SELECT e.key, sum(e.value::bigint) AS times
                  FROM by_minute, jsonb_each_text(errors) e GROUP BY e.key) f),
        'turns', (
            SELECT jsonb_build_object('waiting', count(*) FILTER (WHERE state = 'waiting'),
                                      'running', count(*) FILTER (WHERE state = 'running'),
                                      'waiting_since', min(created_at) FILTER (WHERE state = 'waiting'))
            FROM turns WHERE state IN ('waiting', 'running')),
        'calls_waiting', (SELECT count(*) FROM tool_calls WHERE state = 'waiting' AND answer IS NULL),
        'jobs', (
            SELECT coalesce(jsonb_agg(jsonb_build_object('name', task_name, 'state', status, 'jobs', jobs)
                                      ORDER BY task_name, status), '[]')
            FROM (SELECT task_name, status, count(*) AS jobs FROM procrastinate_jobs
                  WHERE status IN ('todo', 'doing', 'failed') GROUP BY task_name, status) j),
        'database_bytes', pg_database_size(current_database()))
$$;

REVOKE ALL ON FUNCTION minutes_of_steps, first_open_minute, keep_minutes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION keep_minutes TO memserver_app;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION minutes_of_steps SET search_path = %1$s, pg_temp; '
                   'ALTER FUNCTION first_open_minute SET search_path = %1$s, pg_temp; '
                   'ALTER FUNCTION keep_minutes SET search_path = %1$s, pg_temp; '
                   'ALTER FUNCTION operations SET search_path = %1$s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END $$;
"""


def upgrade() -> None:
    """Create it, empty."""
    op.execute(CREATE)
