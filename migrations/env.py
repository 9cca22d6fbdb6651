"""Alembic's entry: runs the versions on the connection that `memserver.storage.migrate` hands over.

Beside its revision the database says which is the oldest one whose code can use it. A version names that by
`compatible_with`; one that doesn't can be used by no older code.
"""

from typing import Any

from alembic import context
from sqlalchemy import text

NOTE = """
INSERT INTO memserver_compatibility VALUES (true, :oldest)
ON CONFLICT (one) DO UPDATE SET oldest = greatest(memserver_compatibility.oldest, excluded.oldest)
"""

connection = context.config.attributes["connection"]


def note_oldest(*, step: Any, **_: Any) -> None:  # noqa: ANN401 - alembic's
    """Record with a version which code can use the database after it."""
    module = step.up_revision.module
    oldest = getattr(module, "compatible_with", module.revision)
    connection.execute(text(NOTE), {"oldest": oldest})


context.configure(
    connection=connection,
    target_metadata=None,
    version_table="memserver_migrations",
    on_version_apply=note_oldest,
)
with context.begin_transaction():
    connection.execute(
        text(
            "CREATE TABLE IF NOT EXISTS memserver_compatibility "
            "(one boolean PRIMARY KEY CHECK (one), oldest text NOT NULL)"
        )
    )
    context.run_migrations()
