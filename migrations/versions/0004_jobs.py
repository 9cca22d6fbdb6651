"""Jobs: procrastinate's own schema, and how the application role queues and takes up jobs.

The schema is that of procrastinate 3.10, kept here as it was then. For a newer one add a revision that
runs the files that procrastinate's `sql/migrations` has gained since; a test compares the two. Its
tables hold no tenant's content: a job's arguments are ids, and whose they are.
"""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"

SCHEMA = Path(__file__).parents[1] / "procrastinate_3_10.sql"

FUNCTIONS = """
-- Queues a job in the caller's transaction; NULL if one of its name and key waits already.
CREATE FUNCTION defer_job(
    name text, tenant text, args jsonb, key text, priority integer, due timestamptz
) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lock_name text := name || ':' || key;
BEGIN
    RETURN (procrastinate_defer_jobs_v1(ARRAY[ROW(
        'memserver', name, priority, lock_name, lock_name,
        jsonb_build_object('tenant', tenant, 'args', args), due
    )::procrastinate_job_to_defer_v1]))[1];
EXCEPTION WHEN unique_violation THEN
    RETURN NULL;
END
$$;

-- Queues again what dead workers were running; one that outlived too many of them has failed.
CREATE FUNCTION retry_stalled_jobs(seconds double precision, most_attempts integer)
RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stalled record;
BEGIN
    FOR stalled IN
        SELECT job.id, job.attempts
        FROM procrastinate_jobs job
        LEFT JOIN procrastinate_workers worker ON worker.id = job.worker_id
        WHERE job.status = 'doing' AND job.queue_name = 'memserver'
          AND (worker.id IS NULL
               OR worker.last_heartbeat < now() - make_interval(secs => seconds))
        FOR UPDATE OF job SKIP LOCKED
    LOOP
        IF stalled.attempts + 1 >= most_attempts THEN
            PERFORM procrastinate_finish_job_v1(stalled.id, 'failed', false);
        ELSE
            BEGIN
                PERFORM procrastinate_retry_job_v2(stalled.id, now(), NULL, NULL, NULL);
            EXCEPTION WHEN unique_violation THEN -- another one of its name and key waits already
                PERFORM procrastinate_finish_job_v1(stalled.id, 'failed', true);
            END;
        END IF;
        RETURN NEXT stalled.id;
    END LOOP;
END
$$;
"""

TABLES = (
    "procrastinate_jobs",
    "procrastinate_workers",
    "procrastinate_events",
    "procrastinate_periodic_defers",
)
SEQUENCES = (
    "procrastinate_jobs_id_seq",
    "procrastinate_workers_id_seq",
    "procrastinate_events_id_seq",
    "procrastinate_periodic_defers_id_seq",
)


def upgrade() -> None:
    """Create it, and let the application role work with it."""
    op.execute(SCHEMA.read_text(encoding="utf-8"))
    op.execute(FUNCTIONS)
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(TABLES)} TO memserver_app")
    op.execute(f"GRANT USAGE ON SEQUENCE {', '.join(SEQUENCES)} TO memserver_app")
