"""Databases of older and newer revisions, and what a migration does to the servers that are at work."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, make_url, pool

from memserver.storage.migrate import migrations_folder, newest_revision


def upgrade(owner_url: str, revision: str, folder: Path | None = None) -> None:
    """Migrate a database to a revision, as its owner."""
    engine = create_engine(
        make_url(owner_url).set(drivername="postgresql+psycopg"), poolclass=pool.NullPool
    )
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(folder or migrations_folder()))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


@contextmanager
def further_migrations(*versions: str) -> Iterator[Path]:
    """The migrations there are and further ones, each a body of `upgrade`'s module; numbered from 9001 on."""
    with TemporaryDirectory(prefix="memserver-migrations-") as folder:
        made = Path(folder) / "migrations"
        shutil.copytree(migrations_folder(), made, ignore=shutil.ignore_patterns("__pycache__"))
        before = newest_revision()
        for number, body in enumerate(versions, start=9001):
            head = f"from alembic import op\nrevision = '{number}'\ndown_revision = '{before}'\n"
            (made / "versions" / f"{number}_further.py").write_text(head + body)
            before = str(number)
        yield made


_SCHEMA = """
SELECT 'column ' || c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
       c.relname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relkind IN ('r', 'p', 'v') AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0
  AND NOT a.attisdropped
UNION ALL
SELECT 'function ' || p.oid::regprocedure, pg_get_function_result(p.oid), '', false
FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND NOT EXISTS (
    SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT 'constraint ' || t.relname || '.' || n.conname, pg_get_constraintdef(n.oid), t.relname, true
FROM pg_constraint n JOIN pg_class t ON t.oid = n.conrelid
WHERE n.connamespace = 'public'::regnamespace AND n.contype <> 'n'
UNION ALL
SELECT 'index ' || i.relname, '', t.relname, true
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
WHERE i.relnamespace = 'public'::regnamespace AND NOT EXISTS (
    SELECT 1 FROM pg_constraint n WHERE n.conindid = x.indexrelid)
"""


class Part(NamedTuple):
    """Of a schema: how it is, to which table it belongs, and whether an older server may not find it new there."""

    shape: str
    table: str
    burdens: bool


Schema = dict[str, Part]


def schema(owner_url: str) -> Schema:
    """What the statements of a server find."""
    with psycopg.connect(owner_url) as connection:
        return {name: Part(*part) for name, *part in connection.execute(_SCHEMA).fetchall()}


def breaks(before: Schema, after: Schema) -> list[str]:
    """What a server of before can't live with: what is gone or another, and what its tables have that they must not get.

    That is a column which it doesn't fill, a constraint which it doesn't know, and an index that was built under a lock.
    Constraints and indexes may go.
    """
    tables = {part.table for part in before.values()}
    found = []
    for name, part in before.items():
        needed = name.startswith(("column", "function"))
        if (needed and name not in after) or (name in after and after[name].shape != part.shape):
            found.append(name)
    found += [
        name
        for name, part in after.items()
        if name not in before and part.burdens and part.table in tables
    ]
    return sorted(found)
