"""Documents keep the charset that their file was declared in, which counts before any guess.

An older server leaves the column alone.
"""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE documents ADD COLUMN charset text NOT NULL DEFAULT ''")
