"""The model's tokens for each one that we count, learnt from its usage, and for which model that is."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add it; NULL is not learnt yet."""
    op.execute(
        "ALTER TABLE agent_state ADD COLUMN token_scale real, ADD COLUMN token_scale_model text"
    )
