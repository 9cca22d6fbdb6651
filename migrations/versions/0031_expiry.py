"""Messages and passages can expire: at a time of their own, or by the tenant's rule.

An older server leaves the columns alone, and erases nothing.
"""

from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Add the columns, and indexes of those that have a time."""
    op.execute("ALTER TABLE tenants ADD COLUMN retention_days integer CHECK (retention_days >= 1)")
    for table, key in (
        ("messages", "agent_id, expires_at, position"),
        ("passages", "collection_id, expires_at, id"),
    ):
        op.execute(f"ALTER TABLE {table} ADD COLUMN expires_at timestamptz")
        op.execute(f"CREATE INDEX {table}_expiring ON {table} ({key}) WHERE expires_at IS NOT NULL")
