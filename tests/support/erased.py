"""Whether something that was erased is left anywhere."""

import psycopg

from tests.support.server import OneDatabase

WORD = "quarkmoth"


def holding(database: OneDatabase, word: str = WORD) -> list[str]:
    """The tables that have a word anywhere."""
    with psycopg.connect(database.superuser) as connection:
        tables = connection.execute(
            """SELECT c.oid::regclass::text FROM pg_class c
               WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"""
        ).fetchall()
        return [
            table
            for (table,) in tables
            if connection.execute(
                f"SELECT 1 FROM {table} t WHERE strpos(lower(t::text), %s) > 0 LIMIT 1".encode(),
                [word],
            ).fetchone()
        ]
