"""Functions that run with the owner's rights do nothing for the application role but what they are for."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from tests.support.server import OneDatabase

OWNERS_FUNCTIONS = """
SELECT oid::regprocedure::text, array_to_string(proconfig, '; ') FROM pg_proc
WHERE prosecdef AND pronamespace = 'public'::regnamespace
"""
EVIL = """
CREATE FUNCTION pg_temp.evil() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    ALTER TABLE public.agents DISABLE ROW LEVEL SECURITY;
    RETURN 'mine';
END $$;
CREATE TEMPORARY VIEW tenants AS SELECT pg_temp.evil() AS tenant, now() AS created_at;
GRANT ALL ON tenants TO PUBLIC;
"""


@pytest.fixture(scope="module")
def fresh(postgres: EmbeddedPostgres) -> Iterator[OneDatabase]:
    """Migrated itself: what is granted on a database is not copied from its template."""
    name = f"fresh_{uuid4().hex}"
    prepare_embedded(postgres.url(), name)
    migrate(postgres.url(name, OWNER_ROLE))
    yield OneDatabase(
        postgres.url(name, APP_ROLE), postgres.url(name, OWNER_ROLE), postgres.url(name)
    )
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_every_function_of_the_owner_looks_into_temporary_tables_last(
    database: OneDatabase,
) -> None:
    with psycopg.connect(database.owner) as connection:
        functions = connection.execute(OWNERS_FUNCTIONS).fetchall()
    assert len(functions) > 15
    assert [
        name for name, settings in functions if "search_path=public, pg_temp" not in settings
    ] == []


def test_a_temporary_view_of_a_tables_name_is_not_used_with_the_owners_rights(
    database: OneDatabase,
) -> None:
    with psycopg.connect(database.app) as connection:
        connection.execute(EVIL)
        found = connection.execute("SELECT tenant FROM list_tenants('', 10, false)").fetchall()
    assert found == [("default",)]


def test_the_application_role_makes_no_temporary_tables(fresh: OneDatabase) -> None:
    with (
        psycopg.connect(fresh.app) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TEMPORARY TABLE tenants (tenant text)")
