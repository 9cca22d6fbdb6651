"""A webhook whose address is gone hears of nothing more, and a turn knows the request that posted it.

An older server delivers what it finds queued, and leaves the columns alone.
"""

from alembic import op

revision = "0032"
down_revision = "0031"

DISABLED = """
CREATE OR REPLACE FUNCTION queue_event() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM defer_job(
        'deliver_event', w.tenant,
        jsonb_build_object(
            'webhook', w.id, 'id', 'evt_' || gen_random_uuid(), 'type', TG_ARGV[0], 'timestamp', now(),
            'data', (SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(NEW))
                     WHERE key = ANY (TG_ARGV))),
        NULL, 0, NULL)
    FROM webhooks w WHERE w.tenant = NEW.tenant AND w.disabled_at IS NULL AND TG_ARGV[0] = ANY (w.events);
    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    """Add the columns, and leave out the disabled where an event is queued."""
    op.execute("ALTER TABLE webhooks ADD COLUMN disabled_at timestamptz")
    op.execute("ALTER TABLE turns ADD COLUMN request_id text")
    op.execute(DISABLED)
