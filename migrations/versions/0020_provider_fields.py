"""What a model's message came with beyond the standard, such as reasoning_content: see ProviderFields."""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column; the messages there are have none."""
    op.execute("ALTER TABLE messages ADD COLUMN fields jsonb")
