"""Databases of older revisions."""

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, make_url, pool

from memserver.storage.migrate import migrations_folder


def upgrade(owner_url: str, revision: str) -> None:
    """Migrate a database to a revision, as its owner."""
    engine = create_engine(
        make_url(owner_url).set(drivername="postgresql+psycopg"), poolclass=pool.NullPool
    )
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(migrations_folder()))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()
