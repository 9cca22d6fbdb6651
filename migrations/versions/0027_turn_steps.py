"""What each step of a turn cost, for a look at it later; and, where that is wanted, what the model was sent and replied.

An older server writes none of it. `seconds` is how long a turn took that ended with the step, from its message on.
"""

from alembic import op

revision = "0027"
down_revision = "0026"

CREATE = """
CREATE TABLE turn_steps (
    agent_id uuid NOT NULL,
    turn     bigint NOT NULL,
    step     integer NOT NULL,
    tenant   text NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    position bigint,
    model    text NOT NULL,
    parts    json NOT NULL, -- in the prompt's order
    memory   real NOT NULL,
    queue    real NOT NULL,
    asking   real NOT NULL,
    tools    real NOT NULL,
    database real NOT NULL,
    other    real NOT NULL,
    prompt_tokens     integer NOT NULL,
    completion_tokens integer NOT NULL,
    cached_tokens     integer NOT NULL,
    stop     text,
    error    text,
    seconds  real,
    request  text,
    reply    text,
    PRIMARY KEY (agent_id, turn, step),
    FOREIGN KEY (agent_id, turn) REFERENCES turns ON DELETE CASCADE
);
CREATE INDEX turn_steps_by_time ON turn_steps (at);
CREATE INDEX turn_steps_traced ON turn_steps (at) WHERE request IS NOT NULL;

-- Forgets what models were sent and replied longer ago, whoever's it is; says how many steps' it was.
CREATE FUNCTION forget_traces(age double precision, at_most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (
        UPDATE turn_steps s SET request = NULL, reply = NULL
        FROM (
            SELECT agent_id, turn, step FROM turn_steps
            WHERE request IS NOT NULL AND at < now() - make_interval(secs => age)
            ORDER BY at LIMIT at_most FOR UPDATE SKIP LOCKED
        ) old
        WHERE s.agent_id = old.agent_id AND s.turn = old.turn AND s.step = old.step
        RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

-- How the server does, all tenants together: what the last so many minutes brought, each minute and as a whole, and
-- what stands in line now.
CREATE FUNCTION operations(minutes integer) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH recent AS MATERIALIZED (
        SELECT date_trunc('minute', at) AS minute, seconds, error, memory, queue, asking, tools, database, other,
               prompt_tokens, completion_tokens, cached_tokens
        FROM turn_steps
        WHERE at >= date_trunc('minute', now()) - make_interval(mins => minutes - 1)
    ), by_minute AS (
        SELECT minute, count(seconds) AS turns, count(*) AS steps, count(error) AS errors,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,
               percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95,
               sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
               sum(cached_tokens) AS cached_tokens
        FROM recent GROUP BY minute
    )
    SELECT jsonb_build_object(
        'at', now(),
        'minutes', (
            SELECT jsonb_agg(jsonb_build_object(
                'at', m, 'turns', coalesce(b.turns, 0), 'steps', coalesce(b.steps, 0),
                'errors', coalesce(b.errors, 0), 'p50', b.p50, 'p95', b.p95,
                'prompt_tokens', coalesce(b.prompt_tokens, 0),
                'completion_tokens', coalesce(b.completion_tokens, 0),
                'cached_tokens', coalesce(b.cached_tokens, 0)) ORDER BY m)
            FROM generate_series(
                date_trunc('minute', now()) - make_interval(mins => minutes - 1),
                date_trunc('minute', now()), interval '1 minute') m
            LEFT JOIN by_minute b ON b.minute = m),
        'turn_seconds', (
            SELECT jsonb_build_object('p50', p[1], 'p95', p[2], 'p99', p[3], 'max', m)
            FROM (SELECT percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY seconds) AS p,
                         max(seconds) AS m FROM recent WHERE seconds IS NOT NULL) t),
        'step_seconds', (
            SELECT jsonb_build_object('memory', avg(memory), 'queue', avg(queue), 'model', avg(asking),
                'tools', avg(tools), 'database', avg(database), 'other', avg(other)) FROM recent),
        'errors', (
            SELECT coalesce(jsonb_object_agg(error, times), '{}')
            FROM (SELECT error, count(*) AS times FROM recent WHERE error IS NOT NULL GROUP BY error) e),
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

REVOKE ALL ON FUNCTION forget_traces, operations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION forget_traces, operations TO memserver_app;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION forget_traces SET search_path = %1$s, pg_temp; '
                   'ALTER FUNCTION operations SET search_path = %1$s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END $$;
"""


def upgrade() -> None:
    """Create it, empty."""
    op.execute(CREATE)
    op.execute("SELECT keep_to_tenant('turn_steps')")
