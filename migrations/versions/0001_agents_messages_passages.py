"""Agents with their inbox, history, working context and archival storage, under row-level security.

Two roles use this schema: the owner, who runs this file and is not bound by the policies, and
memserver_app, who is. Everything that a tenant owns carries `tenant`; a transaction says whose it
is by set_config('memserver.tenant', ..., true), and without that it sees nothing.
"""

from alembic import op

revision = "0001"
down_revision = None

TABLES = """
CREATE TABLE agents (
    id             uuid PRIMARY KEY,
    tenant         text NOT NULL,
    name           text NOT NULL,
    model          text,
    system_prompt  text,
    options        jsonb NOT NULL DEFAULT '{}',
    metadata       jsonb NOT NULL DEFAULT '{}',
    collection_id  uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name)
);
CREATE INDEX agents_by_age ON agents (tenant, created_at, id);

-- What changes with every turn, apart from what seldom does. The inbox is empty when
-- done_turn + 1 = next_turn, so that giving up the lease and finding new work are decided
-- on this one row.
CREATE TABLE agent_state (
    agent_id         uuid PRIMARY KEY REFERENCES agents ON DELETE CASCADE,
    tenant           text NOT NULL,
    next_turn        bigint NOT NULL DEFAULT 1,
    done_turn        bigint NOT NULL DEFAULT 0,
    lease_owner      text,
    lease_epoch      bigint NOT NULL DEFAULT 0,
    lease_expires_at timestamptz,
    queue_start      bigint NOT NULL DEFAULT 0,
    pressure_warned  boolean NOT NULL DEFAULT false,
    message_count    bigint NOT NULL DEFAULT 0,
    passage_count    bigint NOT NULL DEFAULT 0,
    memory_edited_at timestamptz NOT NULL DEFAULT now(),
    stats_messages   bigint NOT NULL DEFAULT 0,
    stats_passages   bigint NOT NULL DEFAULT 0,
    stats_edited_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- One row for each thing that came in: a message to answer, or a batch of imported ones.
CREATE TABLE turns (
    agent_id          uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    turn              bigint NOT NULL,
    tenant            text NOT NULL,
    kind              text NOT NULL CHECK (kind IN ('message', 'import')),
    state             text NOT NULL DEFAULT 'waiting'
                      CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    epoch             bigint,
    steps             integer NOT NULL DEFAULT 0,
    attempts          integer NOT NULL DEFAULT 0,
    stop_reason       text,
    error             jsonb,
    prompt_tokens     bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens     bigint NOT NULL DEFAULT 0,
    idempotency_key   text,
    fingerprint       text,
    posted_by         text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    finished_at       timestamptz,
    PRIMARY KEY (agent_id, turn),
    UNIQUE (agent_id, idempotency_key)
);
CREATE INDEX turns_open ON turns (agent_id) WHERE state IN ('waiting', 'running');

-- Recall storage. position = turn x 1000 + place in the turn.
CREATE TABLE messages (
    agent_id   uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    position   bigint NOT NULL,
    tenant     text NOT NULL,
    role       text NOT NULL CHECK (role IN ('user', 'assistant', 'system')),
    content    text NOT NULL,
    thought    text NOT NULL DEFAULT '',
    tokens     integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, position)
);
CREATE INDEX messages_by_time ON messages (agent_id, created_at, position);

-- The call that an assistant's message made: same key, at most one a step.
CREATE TABLE tool_calls (
    agent_id    uuid NOT NULL,
    position    bigint NOT NULL,
    tenant      text NOT NULL,
    call_id     text NOT NULL,
    name        text NOT NULL,
    arguments   json NOT NULL, -- json keeps the order in which the model wrote them
    state       text NOT NULL
                CHECK (state IN ('pending', 'running', 'waiting', 'done', 'failed', 'interrupted')),
    result      text,
    epoch       bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (agent_id, position),
    FOREIGN KEY (agent_id, position) REFERENCES messages ON DELETE CASCADE,
    CHECK ((state IN ('done', 'failed', 'interrupted')) = (result IS NOT NULL))
);
CREATE INDEX tool_calls_open ON tool_calls (agent_id)
    WHERE state IN ('pending', 'running', 'waiting');

-- The recursive summary and its history; the newest row is the one in the prompt.
CREATE TABLE summaries (
    agent_id      uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    until         bigint NOT NULL,
    tenant        text NOT NULL,
    text          text NOT NULL,
    tokens        integer NOT NULL,
    evicted       integer NOT NULL,
    method        text NOT NULL CHECK (method IN ('model', 'extractive')),
    failure       text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, until)
);

-- The working context. A section can be read by several agents.
CREATE TABLE sections (
    id              uuid PRIMARY KEY,
    tenant          text NOT NULL,
    content         text NOT NULL DEFAULT '',
    character_limit integer NOT NULL CHECK (character_limit > 0),
    description     text NOT NULL DEFAULT '',
    version         bigint NOT NULL DEFAULT 1,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CHECK (char_length(content) <= character_limit)
);
CREATE TABLE agent_sections (
    agent_id   uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    name       text NOT NULL,
    tenant     text NOT NULL,
    section_id uuid NOT NULL REFERENCES sections,
    place      integer NOT NULL,
    PRIMARY KEY (agent_id, name)
);
CREATE INDEX agent_sections_by_section ON agent_sections (section_id);
CREATE TABLE section_edits (
    section_id uuid NOT NULL REFERENCES sections ON DELETE CASCADE,
    version    bigint NOT NULL,
    tenant     text NOT NULL,
    content    text NOT NULL,
    actor      text NOT NULL CHECK (actor IN ('tool', 'api', 'import')),
    agent_id   uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (section_id, version)
);

-- Archival storage: passages by collection, vectors by embedding model (see vectors_table).
CREATE TABLE collections (
    id              uuid PRIMARY KEY,
    tenant          text NOT NULL,
    name            text NOT NULL,
    embedding_model text NOT NULL,
    dimension       integer NOT NULL,
    passage_count   bigint NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE agents ADD FOREIGN KEY (collection_id) REFERENCES collections;
CREATE INDEX agents_by_collection ON agents (collection_id);
CREATE TABLE passages (
    collection_id uuid NOT NULL REFERENCES collections ON DELETE CASCADE,
    id            uuid NOT NULL,
    tenant        text NOT NULL,
    content       text NOT NULL,
    tags          text[] NOT NULL DEFAULT '{}',
    metadata      jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (collection_id, id)
);
CREATE INDEX passages_by_time ON passages (collection_id, created_at, id);
CREATE TABLE embedding_models (
    name       text NOT NULL,
    dimension  integer NOT NULL CHECK (dimension BETWEEN 1 AND 4000),
    table_name text NOT NULL UNIQUE,
    PRIMARY KEY (name, dimension)
);
"""

TENANT_TABLES = (
    "agents",
    "agent_state",
    "turns",
    "messages",
    "tool_calls",
    "summaries",
    "sections",
    "agent_sections",
    "section_edits",
    "collections",
    "passages",
)

# Functions that see all tenants because their owner does; each does one narrow thing.
FUNCTIONS = """
-- Agents with something in their inbox that nobody is serving.
CREATE FUNCTION agents_waiting(at_most integer) RETURNS TABLE (agent_id uuid, tenant text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT s.agent_id, s.tenant
    FROM (SELECT DISTINCT t.agent_id FROM turns t WHERE t.state IN ('waiting', 'running')) open
    JOIN agent_state s ON s.agent_id = open.agent_id
    WHERE s.lease_owner IS NULL OR s.lease_expires_at < now()
    LIMIT at_most
$$;

-- Prolongs the leases that a worker still holds; answers which ones those are.
CREATE FUNCTION renew_leases(worker text, agents uuid[], seconds double precision)
RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE agent_state SET lease_expires_at = now() + make_interval(secs => seconds)
    WHERE agent_id = ANY (agents) AND lease_owner = worker
    RETURNING agent_id
$$;

-- The table that holds a model's vectors; made when the model is first seen.
CREATE FUNCTION vectors_table(model text, dims integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found_name text;
BEGIN
    SELECT table_name INTO found_name FROM embedding_models
    WHERE name = model AND dimension = dims;
    IF found_name IS NOT NULL THEN
        RETURN found_name;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('memserver vectors_table', 0));
    found_name := 'vectors_' || substr(md5(model || '/' || dims), 1, 12);
    INSERT INTO embedding_models VALUES (model, dims, found_name) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN found_name;
    END IF;
    EXECUTE format(
        'CREATE TABLE %I (
             collection_id uuid NOT NULL,
             passage_id    uuid NOT NULL,
             tenant        text NOT NULL,
             embedding     halfvec(%s) NOT NULL,
             PRIMARY KEY (collection_id, passage_id),
             FOREIGN KEY (collection_id, passage_id) REFERENCES passages ON DELETE CASCADE
         )', found_name, dims);
    EXECUTE format('ALTER TABLE %I ALTER COLUMN embedding SET STORAGE PLAIN', found_name);
    PERFORM keep_to_tenant(found_name);
    RETURN found_name;
END
$$;
"""

KEEP_TO_TENANT = """
CREATE FUNCTION keep_to_tenant(table_name text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', table_name);
    EXECUTE format(
        'CREATE POLICY tenant_only ON %I USING (tenant = current_setting(''memserver.tenant'', true))
         WITH CHECK (tenant = current_setting(''memserver.tenant'', true))', table_name);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO memserver_app', table_name);
END
$$;
REVOKE ALL ON FUNCTION keep_to_tenant FROM PUBLIC;
"""

GRANTS = """
GRANT SELECT ON embedding_models, memserver_migrations TO memserver_app;
REVOKE ALL ON FUNCTION agents_waiting, renew_leases, vectors_table FROM PUBLIC;
GRANT EXECUTE ON FUNCTION agents_waiting, renew_leases, vectors_table TO memserver_app;
"""


def upgrade() -> None:
    """Create everything."""
    op.execute(TABLES)
    op.execute(KEEP_TO_TENANT)
    for table in TENANT_TABLES:
        op.execute(f"SELECT keep_to_tenant('{table}')")
    op.execute(FUNCTIONS)
    op.execute(GRANTS)
