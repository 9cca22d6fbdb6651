"""Pictures: each once for a tenant, by the hash of its bytes; messages name those that they show."""

from alembic import op

revision = "0025"
down_revision = "0024"

CREATE = """
CREATE TABLE pictures (
    tenant     text NOT NULL,
    digest     text NOT NULL,
    data       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    kept_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, digest)
);
ALTER TABLE pictures ALTER COLUMN data SET STORAGE EXTERNAL; -- they are compressed already
ALTER TABLE messages ADD COLUMN pictures jsonb;
CREATE INDEX messages_with_pictures ON messages (tenant, agent_id) WHERE pictures IS NOT NULL;
"""


def upgrade() -> None:
    """Create them; the messages there are show none."""
    op.execute(CREATE)
    op.execute("SELECT keep_to_tenant('pictures')")
