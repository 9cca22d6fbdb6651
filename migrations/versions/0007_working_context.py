"""Sections that several agents read, who made an edit and where, and locks in one order."""

from alembic import op

revision = "0007"
down_revision = "0006"

# A section made for no agent in particular has a name of its own, and stays until it is deleted; one
# made for an agent goes with its last reader. `position` is the call's in the agent's history.
SECTIONS = """
ALTER TABLE sections ADD COLUMN name text;
CREATE INDEX sections_by_themselves ON sections (tenant, id) WHERE name IS NOT NULL;
ALTER TABLE agent_sections ADD COLUMN read_only boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX agent_sections_once ON agent_sections (agent_id, section_id);
ALTER TABLE section_edits ADD COLUMN position bigint, ADD COLUMN restores bigint;
"""

# Rows of several agents are locked in the order of their ids, here and wherever an edit of a shared
# section renews its readers' statistics, so that two who do so never wait for one another.
RENEW_LEASES = """
CREATE OR REPLACE FUNCTION renew_leases(worker text, agents uuid[], seconds double precision)
RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH held AS (
        SELECT agent_id FROM agent_state
        WHERE agent_id = ANY (agents) AND lease_owner = worker
        ORDER BY agent_id FOR NO KEY UPDATE
    )
    UPDATE agent_state s SET lease_expires_at = now() + make_interval(secs => seconds)
    FROM held WHERE s.agent_id = held.agent_id
    RETURNING s.agent_id
$$;
"""


def upgrade() -> None:
    """Add the columns; renew leases in order."""
    op.execute(SECTIONS)
    op.execute(RENEW_LEASES)
