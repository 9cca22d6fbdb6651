"""Alembic's entry: runs the versions on the connection that `memserver.storage.migrate` hands over."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=None, version_table="memserver_migrations")
with context.begin_transaction():
    context.run_migrations()
