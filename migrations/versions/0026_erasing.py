"""Single messages can be deleted: what was read of a history, or summarised, before that is out of date.

An older server leaves both columns alone.
"""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Add the columns."""
    op.execute("ALTER TABLE agent_state ADD COLUMN history_version bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE summaries ADD COLUMN outdated boolean NOT NULL DEFAULT false")
