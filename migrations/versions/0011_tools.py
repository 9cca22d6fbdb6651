"""Tools of a tenant's own, which agents have which of them, and calls that wait for somebody.

A turn whose call waits, for approval or for the caller's result, is in the state requires_action. Its
agent is `paused`: a column of the row on which taking the lease is decided, so that no worker takes the
agent until somebody has answered.
"""

from alembic import op

revision = "0011"
down_revision = "0010"

TABLES = """
CREATE TABLE mcp_servers (
    id         uuid PRIMARY KEY,
    tenant     text NOT NULL,
    name       text NOT NULL,
    url        text NOT NULL,
    headers    jsonb NOT NULL DEFAULT '{}',
    timeout    double precision CHECK (timeout > 0),
    listed_at  timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name)
);

CREATE TABLE tools (
    id          uuid PRIMARY KEY,
    tenant      text NOT NULL,
    name        text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('webhook', 'client', 'mcp')),
    description text NOT NULL,
    parameters  json NOT NULL, -- json keeps the order of the properties
    timeout     double precision CHECK (timeout > 0),
    url         text,
    secret      text,
    retries     integer NOT NULL DEFAULT 0 CHECK (retries BETWEEN 0 AND 10),
    server_id   uuid REFERENCES mcp_servers ON DELETE CASCADE,
    remote_name text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name),
    CHECK ((kind = 'webhook') = (url IS NOT NULL AND secret IS NOT NULL)),
    CHECK ((kind = 'mcp') = (server_id IS NOT NULL AND remote_name IS NOT NULL))
);
CREATE INDEX tools_by_server ON tools (server_id) WHERE server_id IS NOT NULL;

-- What an agent has said of a tool: of a tenant's own by its id, of the server's by its name alone.
CREATE TABLE agent_tools (
    agent_id   uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    name       text NOT NULL,
    tenant     text NOT NULL,
    tool_id    uuid REFERENCES tools ON DELETE CASCADE,
    attached   boolean NOT NULL DEFAULT true,
    approval   boolean NOT NULL DEFAULT false,
    first      boolean NOT NULL DEFAULT false,
    terminal   boolean NOT NULL DEFAULT false,
    required   boolean NOT NULL DEFAULT false,
    max_calls  integer CHECK (max_calls > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, name)
);
CREATE INDEX agent_tools_by_tool ON agent_tools (tool_id) WHERE tool_id IS NOT NULL;

ALTER TABLE tool_calls
    ADD COLUMN waits_for text CHECK (waits_for IN ('approval', 'client')),
    ADD COLUMN answer jsonb; -- what was answered, until the turn has worked it in, and after
ALTER TABLE tool_calls ADD CHECK (state <> 'waiting' OR waits_for IS NOT NULL);
CREATE INDEX tool_calls_waiting ON tool_calls (tenant, agent_id)
    WHERE state = 'waiting' AND answer IS NULL;

ALTER TABLE agent_state ADD COLUMN paused boolean NOT NULL DEFAULT false;
ALTER TABLE turns DROP CONSTRAINT turns_state_check;
ALTER TABLE turns ADD CONSTRAINT turns_state_check
    CHECK (state IN ('waiting', 'running', 'requires_action', 'done', 'failed'));

-- As before, but a paused agent has nothing to be served.
CREATE OR REPLACE FUNCTION agents_waiting(at_most integer)
RETURNS TABLE (agent_id uuid, tenant text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT s.agent_id, s.tenant
    FROM (SELECT DISTINCT t.agent_id FROM turns t WHERE t.state IN ('waiting', 'running')) open
    JOIN agent_state s ON s.agent_id = open.agent_id
    WHERE (s.lease_owner IS NULL OR s.lease_expires_at < now()) AND NOT s.paused
    LIMIT at_most
$$;
"""


def upgrade() -> None:
    """Create it."""
    op.execute(TABLES)
    for table in ("mcp_servers", "tools", "agent_tools"):
        op.execute(f"SELECT keep_to_tenant('{table}')")
