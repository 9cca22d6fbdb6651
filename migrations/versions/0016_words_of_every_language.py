"""Stand-in."""

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.get_bind().exec_driver_sql("""CREATE FUNCTION query_words(languages text[], query text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$ SELECT ARRAY(SELECT DISTINCT w FROM unnest(languages) l, unnest(tsvector_to_array(to_tsvector(l::regconfig, query))) w) $$""")
