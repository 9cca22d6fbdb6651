"""Timers: what an agent will be reminded of, and when. The job that does it knows nothing but the timer's id."""

from alembic import op

revision = "0019"
down_revision = "0018"

TABLE = """
CREATE TABLE timers (
    id         uuid PRIMARY KEY,
    agent_id   uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    tenant     text NOT NULL,
    text       text NOT NULL,
    due        timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX timers_of_agent ON timers (agent_id, id);
"""


def upgrade() -> None:
    """Create it."""
    op.execute(TABLE)
    op.execute("SELECT keep_to_tenant('timers')")
