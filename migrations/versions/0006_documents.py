"""Documents: the files that passages come from, with their text and how far they have been taken in."""

from alembic import op

revision = "0006"
down_revision = "0005"

TABLES = """
CREATE TABLE documents (
    id            uuid PRIMARY KEY,
    tenant        text NOT NULL,
    collection_id uuid NOT NULL REFERENCES collections ON DELETE CASCADE,
    name          text NOT NULL,
    kind          text NOT NULL,
    bytes         bigint NOT NULL,
    sha256        bytea NOT NULL,
    tags          text[] NOT NULL DEFAULT '{}',
    metadata      jsonb NOT NULL DEFAULT '{}',
    state         text NOT NULL DEFAULT 'waiting'
                  CHECK (state IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
    error         jsonb,
    warnings      jsonb NOT NULL DEFAULT '[]',
    pages         integer,
    characters    bigint,
    chunks_done   integer NOT NULL DEFAULT 0,
    chunks_total  integer,
    created_at    timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    finished_at   timestamptz,
    CHECK (chunks_done <= chunks_total)
);
CREATE INDEX documents_by_age ON documents (collection_id, id);
CREATE INDEX documents_by_content ON documents (collection_id, sha256);

-- The file as it came. A PDF or DOCX is compressed already.
CREATE TABLE document_files (
    document_id uuid PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    tenant      text NOT NULL,
    content     bytea NOT NULL
);
ALTER TABLE document_files ALTER COLUMN content SET STORAGE EXTERNAL;

-- What was read in it, and where it is cut: settled once, so that whoever goes on cuts alike.
CREATE TABLE document_texts (
    document_id uuid PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    tenant      text NOT NULL,
    content     text NOT NULL,
    sections    jsonb NOT NULL,
    chunks      jsonb NOT NULL
);
"""


def upgrade() -> None:
    """Create them."""
    op.execute(TABLES)
    for table in ("documents", "document_files", "document_texts"):
        op.execute(f"SELECT keep_to_tenant('{table}')")
