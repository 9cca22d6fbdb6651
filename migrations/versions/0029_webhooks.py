"""Event webhooks of a tenant. What they are to be told of is queued by triggers, in the transaction that it happens in.

So all that ends a turn counts, and an older server queues it too; a tenant without webhooks pays a look into an empty index.
"""

from alembic import op

revision = "0029"
down_revision = "0028"

CREATE = """
CREATE TABLE webhooks (
    id           uuid PRIMARY KEY,
    tenant       text NOT NULL,
    url          text NOT NULL,
    secret       text NOT NULL,
    events       text[] NOT NULL,
    delivered_at timestamptz,
    error        text,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX webhooks_by_tenant ON webhooks (tenant);
SELECT keep_to_tenant('webhooks');

-- Its arguments: the event, and the columns that say what it is of. No content, since no policy guards the queue.
CREATE FUNCTION queue_event() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM defer_job(
        'deliver_event', w.tenant,
        jsonb_build_object(
            'webhook', w.id, 'id', 'evt_' || gen_random_uuid(), 'type', TG_ARGV[0], 'timestamp', now(),
            'data', (SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(NEW))
                     WHERE key = ANY (TG_ARGV))),
        NULL, 0, NULL)
    FROM webhooks w WHERE w.tenant = NEW.tenant AND TG_ARGV[0] = ANY (w.events);
    RETURN NULL;
END
$$;

CREATE TRIGGER turn_ended AFTER UPDATE OF state ON turns FOR EACH ROW
WHEN (NEW.state IN ('done', 'failed') AND OLD.state <> NEW.state AND NEW.kind = 'message')
EXECUTE FUNCTION queue_event('turn.ended', 'agent_id', 'turn', 'state', 'stop_reason');

CREATE TRIGGER approval_waiting AFTER INSERT ON tool_calls FOR EACH ROW
WHEN (NEW.state = 'waiting' AND NEW.waits_for = 'approval')
EXECUTE FUNCTION queue_event('approval.waiting', 'agent_id', 'call_id', 'name', 'position');

CREATE TRIGGER document_ready AFTER UPDATE OF state ON documents FOR EACH ROW
WHEN (NEW.state = 'done' AND OLD.state <> NEW.state)
EXECUTE FUNCTION queue_event('document.ready', 'id', 'collection_id', 'state');

CREATE TRIGGER document_failed AFTER UPDATE OF state ON documents FOR EACH ROW
WHEN (NEW.state = 'failed' AND OLD.state <> NEW.state)
EXECUTE FUNCTION queue_event('document.failed', 'id', 'collection_id', 'state');
"""


def upgrade() -> None:
    """Create them."""
    op.execute(CREATE)
