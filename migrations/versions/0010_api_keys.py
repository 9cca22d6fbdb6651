"""Tenants and their API keys, and the answers that are kept for idempotency keys.

A request's tenant is known by its key, so finding a key sees every tenant's: by a function that needs the
digest of the whole secret. A function counts keys and another lists tenants for the server's operator.
"""

from alembic import op

revision = "0010"
down_revision = "0007"

TABLES = """
CREATE TABLE tenants (
    tenant     text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO tenants (tenant)
SELECT 'default' UNION SELECT tenant FROM agents UNION SELECT tenant FROM collections;

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    tenant       text NOT NULL REFERENCES tenants,
    name         text NOT NULL,
    digest       bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
    prefix       text NOT NULL,
    scopes       text[] NOT NULL
                 CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'admin']),
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);

-- A request with an Idempotency-Key: claimed while it runs, then with its answer.
CREATE TABLE idempotency_keys (
    tenant        text NOT NULL,
    key           text NOT NULL,
    fingerprint   bytea NOT NULL,
    claim         uuid NOT NULL,
    claimed_until timestamptz NOT NULL,
    status        smallint,
    content_type  text NOT NULL DEFAULT '',
    body          bytea NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
"""

FUNCTIONS = """
-- The key of this digest, whoever's it is. That it was used is written once a minute.
CREATE FUNCTION use_api_key(secret_digest bytea) RETURNS TABLE (
    id uuid, tenant text, scopes text[], expires_at timestamptz, revoked_at timestamptz
)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE api_keys SET last_used_at = now()
    WHERE digest = secret_digest AND revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > now())
      AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');
    SELECT id, tenant, scopes, expires_at, revoked_at FROM api_keys WHERE digest = secret_digest
$$;

-- Whether there has ever been a key: a revoked one counts, so that revoking the last opens nothing.
CREATE FUNCTION api_keys_exist() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM api_keys)
$$;

-- The tenants behind a name, in the order of their names: for the server's operator.
CREATE FUNCTION list_tenants(behind text, at_most integer) RETURNS SETOF tenants
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT * FROM tenants WHERE tenant > behind ORDER BY tenant LIMIT at_most
$$;

-- Deletes answers whose time is over, whoever's they are; says how many.
CREATE FUNCTION forget_answers(at_most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (
        DELETE FROM idempotency_keys k
        USING (
            SELECT tenant, key FROM idempotency_keys WHERE expires_at < now()
            ORDER BY expires_at LIMIT at_most FOR UPDATE SKIP LOCKED
        ) old
        WHERE k.tenant = old.tenant AND k.key = old.key
        RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION use_api_key, api_keys_exist, list_tenants, forget_answers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION use_api_key, api_keys_exist, list_tenants, forget_answers TO memserver_app;
"""


def upgrade() -> None:
    """Create them; what is there already belongs to tenants that are."""
    op.execute(TABLES)
    for table in ("tenants", "api_keys", "idempotency_keys"):
        op.execute(f"SELECT keep_to_tenant('{table}')")
    op.execute(FUNCTIONS)
    op.execute(GRANTS)
