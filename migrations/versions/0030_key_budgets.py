"""A key may have a budget of tokens for a day; its turns say that they are on it, those of other keys nothing.

An older server knows no budgets, and finds keys by the function that it knows.
"""

from alembic import op

revision = "0030"
down_revision = "0029"

CHANGE = """
ALTER TABLE api_keys ADD COLUMN daily_tokens bigint CHECK (daily_tokens > 0);
ALTER TABLE turns ADD COLUMN api_key uuid;
CREATE INDEX turns_on_budget ON turns (api_key, created_at) WHERE api_key IS NOT NULL;

CREATE FUNCTION find_api_key(secret_digest bytea) RETURNS TABLE (
    id uuid, tenant text, scopes text[], expires_at timestamptz, revoked_at timestamptz, daily_tokens bigint
)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT k.*, a.daily_tokens FROM use_api_key(secret_digest) k JOIN api_keys a USING (id)
$$;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION find_api_key SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END $$;
REVOKE ALL ON FUNCTION find_api_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_api_key TO memserver_app;
"""


def upgrade() -> None:
    """Add them."""
    op.execute(CHANGE)
