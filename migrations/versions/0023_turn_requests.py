"""What a client's request brings to one turn: tools that the client runs, and the form of the answer."""

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Add the column; a call of such a tool waits for an hour at most, since its client may need no answer."""
    op.execute("ALTER TABLE turns ADD COLUMN request jsonb")
    op.execute("""
CREATE OR REPLACE FUNCTION calls_overdue(seconds double precision, at_most integer)
RETURNS TABLE (agent_id uuid, tenant text, call_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT c.agent_id, c.tenant, c.call_id
    FROM tool_calls c JOIN turns t ON t.agent_id = c.agent_id AND t.turn = c.position / 1000
    WHERE c.state = 'waiting' AND c.answer IS NULL
      AND c.created_at < now() - make_interval(secs =>
          CASE WHEN t.request->'names' ? c.name THEN least(seconds, 3600) ELSE seconds END)
    ORDER BY c.created_at
    LIMIT at_most
$$;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION calls_overdue SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END $$;
""")
