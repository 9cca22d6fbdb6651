"""Documents: files that become passages."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memserver.client.models.base import ErrorDetails, Record


class Document(Record):
    """A file that was taken in, or how far it is.

    Attributes:
        kind: what the content was found to be.
        tags: of all its passages.
        metadata: of all its passages.
        error: why it failed; while it is running, what went wrong last and is tried again.
        warnings: what in the file could not be read.
        pages: of a PDF, once it has been read.
        characters: of its text, once it has been read.
        chunks_done: passages that are stored.
        chunks_total: passages that it becomes, once it has been read.
    """

    id: UUID
    collection_id: UUID
    name: str
    kind: Literal["text", "markdown", "html", "pdf", "docx", "jsonl"]
    bytes: int
    tags: list[str]
    metadata: dict[str, Any]
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    error: ErrorDetails | None
    warnings: list[str]
    pages: int | None
    characters: int | None
    chunks_done: int
    chunks_total: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class DocumentText(Record):
    """What was read in a document; its passages' `start` and `end` count this text's characters."""

    text: str
