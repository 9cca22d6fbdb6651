"""What a database server must be, said before anything is made on it."""

import psycopg
import pytest

from memserver.errors import SetupError
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.migrate import OWNER_ROLE, migrate


def test_a_database_that_counts_bytes_as_characters_is_refused(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            """CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'
               OWNER memserver_owner"""
        )
        with pytest.raises(SetupError, match="encoding is SQL_ASCII") as refused:
            migrate(postgres.url("ascii", OWNER_ROLE))
        connection.execute("DROP DATABASE ascii WITH (FORCE)")
    assert "ENCODING 'UTF8'" in refused.value.hint
