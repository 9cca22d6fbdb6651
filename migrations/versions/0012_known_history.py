r"""What was said is found by its text at once; and lists go in both directions.

A row-level security policy keeps the planner off an index of an expression, since hashing a text is not
leakproof. So, as for recall searches, finding is a function of the owner's, which checks the tenant itself.
"""

from alembic import op

revision = "0012"
down_revision = "0011"

# Eight bytes of each text. Clients trim what they keep, so outer blanks don't count.
SAID = r"""
CREATE FUNCTION said_text(content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT btrim($1, E' \t\n\r\f\v') $$;

CREATE INDEX messages_by_text ON messages (agent_id, hashtextextended(said_text(content), 0))
    WHERE role <> 'system' AND content <> '';

-- The messages of an agent that say just one of these texts, in the order of the history.
CREATE FUNCTION messages_saying(agent uuid, texts text[])
RETURNS TABLE (said_at bigint, said_by text, said text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN QUERY
        SELECT m.position, m.role, said_text(m.content)
        FROM (SELECT DISTINCT unnest(texts) AS text) t
        JOIN messages m ON m.agent_id = agent
             AND hashtextextended(said_text(m.content), 0) = hashtextextended(t.text, 0)
        WHERE m.role <> 'system' AND m.content <> '' AND m.tenant = current_tenant()
              AND said_text(m.content) = t.text
        ORDER BY m.position;
END
$$;
"""

DIRECTIONS = """
DROP FUNCTION list_matching;
CREATE FUNCTION list_matching(
    searched uuid[], wanted jsonb, behind uuid, at_most integer, descending boolean
) RETURNS SETOF passages
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT p.* FROM passages p
         WHERE p.collection_id = ANY ($1) AND p.tenant = current_tenant()
           AND ($2 IS NULL OR p.id %s $2) %s ORDER BY p.id %s LIMIT $3',
        CASE WHEN descending THEN '<' ELSE '>' END,
        filter_conditions(searched, wanted),
        CASE WHEN descending THEN 'DESC' ELSE 'ASC' END) USING searched, behind, at_most;
END
$$;

DROP FUNCTION list_tenants;
CREATE FUNCTION list_tenants(behind text, at_most integer, descending boolean)
RETURNS SETOF tenants
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF descending THEN
        RETURN QUERY SELECT * FROM tenants t WHERE behind IS NULL OR t.tenant < behind
                     ORDER BY t.tenant DESC LIMIT at_most;
    ELSE
        RETURN QUERY SELECT * FROM tenants t WHERE behind IS NULL OR t.tenant > behind
                     ORDER BY t.tenant LIMIT at_most;
    END IF;
END
$$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION messages_saying, list_matching, list_tenants FROM PUBLIC;
GRANT EXECUTE ON FUNCTION messages_saying, list_matching, list_tenants TO memserver_app;
"""


def upgrade() -> None:
    """Create them."""
    op.execute(SAID)
    op.execute(DIRECTIONS)
    op.execute(GRANTS)
