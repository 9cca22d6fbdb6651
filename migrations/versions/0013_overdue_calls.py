"""Calls that have waited for an answer as long as they may, of all tenants, for who lets their turns go on."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create it."""
    op.execute("""
CREATE FUNCTION calls_overdue(seconds double precision, at_most integer)
RETURNS TABLE (agent_id uuid, tenant text, call_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT c.agent_id, c.tenant, c.call_id
    FROM tool_calls c
    WHERE c.state = 'waiting' AND c.answer IS NULL
      AND c.created_at < now() - make_interval(secs => seconds)
    ORDER BY c.created_at
    LIMIT at_most
$$;
REVOKE ALL ON FUNCTION calls_overdue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION calls_overdue TO memserver_app;
""")
