"""Functions that run as the owner look names up in our schemas alone, and a check that writes go through.

Where `search_path` doesn't name it, Postgres looks into `pg_temp` first: whoever could make a temporary table or
view of the name of ours had it used with the owner's rights.
"""

from alembic import op

revision = "0015"
down_revision = "0014"

SEARCH_PATH = """
DO $$
DECLARE
    ours text := (SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
                  FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place)
                  WHERE name !~ '^pg_temp');
    each regprocedure;
BEGIN
    FOR each IN SELECT oid FROM pg_proc
                WHERE prosecdef AND pronamespace = current_schema()::regnamespace
                  AND pg_has_role(proowner, 'USAGE')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %s, pg_temp', each, ours);
    END LOOP;
END
$$;
"""

NO_TEMPORARY = """
DO $$
BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'only the owner of the database may: REVOKE TEMPORARY ON DATABASE % FROM PUBLIC', current_database();
END
$$;
"""

CHECK_WRITES = """
CREATE TABLE write_checks (filler text NOT NULL);
ALTER TABLE write_checks ALTER COLUMN filler SET STORAGE EXTERNAL;
ALTER TABLE write_checks ENABLE ROW LEVEL SECURITY;

-- TRUNCATE begins new files, so that the disk must give room, as for a table that grows.
CREATE FUNCTION check_writes() RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    TRUNCATE write_checks;
    INSERT INTO write_checks VALUES (repeat('x', 100000));
$$;
REVOKE ALL ON FUNCTION check_writes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION check_writes TO memserver_app;
"""


def upgrade() -> None:
    """The check first, so that its function is among those that are set."""
    op.execute(CHECK_WRITES)
    op.execute(SEARCH_PATH)
    op.execute(NO_TEMPORARY)
