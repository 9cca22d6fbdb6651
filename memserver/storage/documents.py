"""Documents: files, the text that was read in them, and how far their passages are stored.

A write of passages and the count of those that are done are one transaction, which goes through only if
the document stands as the writer last saw it. So a document that was cancelled, deleted or taken over by
another process gets nothing more from one that has not heard of it. A writer holds the collection's
row before the document's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from memserver.errors import Conflict, InvalidInput, MemserverError, NotFound
from memserver.storage import collections, passages
from memserver.storage.collections import CollectionRow
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id, nth_id
from memserver.storage.rows import (
    PageQuery,
    Table,
    columns_of,
    fetch_one,
    fetch_optional,
    fetch_value,
    fetch_values,
    paginate,
)
from memserver.storage.watched import allow_long_statements
from memserver.text import MOST_METADATA, is_within

MOST_TAGS = 100

State = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as it is stored; without its file and its text."""

    id: UUID
    tenant: str
    collection_id: UUID
    name: str
    kind: str
    charset: str  # in which the file was declared to be; empty if it wasn't
    bytes: int
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    state: State
    error: Mapping[str, str] | None
    warnings: Sequence[str]
    pages: int | None
    characters: int | None
    chunks_done: int
    chunks_total: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it came in; tags and metadata are for all its passages."""

    content: bytes = field(repr=False)
    name: str
    content_type: str = ""
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """What was read in a document: the text, its sections, and the spans that become passages."""

    content: str
    sections: Sequence[Mapping[str, Any]]
    chunks: Sequence[tuple[int, int]]


_COLUMNS, _OF_D = columns_of(DocumentRow), columns_of(DocumentRow, "d.")


def _no_document(document_id: UUID) -> NotFound:
    return NotFound(
        f"There is no document {document_id}.",
        hint="GET /v1/agents/{agent}/documents and /v1/collections/{collection}/documents list them.",
    )


_TABLE = Table(DocumentRow, "documents", _COLUMNS, _no_document)
get = _TABLE.get


async def create(
    tx: Transaction,
    collection: CollectionRow,
    upload: Upload,
    kind: str,
    charset: str,
    sha256: bytes,
) -> DocumentRow:
    return await fetch_one(
        tx,
        DocumentRow,
        f"""WITH created AS (
                INSERT INTO documents
                    (id, tenant, collection_id, name, kind, charset, bytes, sha256, tags, metadata)
                VALUES (%(id)s, %(tenant)s, %(collection_id)s, %(name)s, %(kind)s, %(charset)s, %(bytes)s,
                        %(sha256)s, %(tags)s, %(metadata)s) RETURNING *
            ), stored AS (
                INSERT INTO document_files (document_id, tenant, content)
                SELECT id, tenant, %(content)s FROM created
            )
            SELECT {_COLUMNS} FROM created""",
        {
            **asdict(upload),
            "id": new_id(),
            "tenant": collection.tenant,
            "collection_id": collection.id,
            "kind": kind,
            "charset": charset,
            "bytes": len(upload.content),
            "sha256": sha256,
            "tags": list(upload.tags),
            "metadata": Jsonb(dict(upload.metadata)),
        },
    )


async def find_by_content(
    tx: Transaction, collection_id: UUID, sha256: bytes
) -> DocumentRow | None:
    """The collection's oldest document with this content that hasn't failed and wasn't cancelled."""
    query = f"""SELECT {_COLUMNS} FROM documents
                WHERE collection_id = %s AND sha256 = %s AND state NOT IN ('failed', 'cancelled')
                ORDER BY id LIMIT 1"""
    return await fetch_optional(tx, DocumentRow, query, [collection_id, sha256])


async def label(tx: Transaction, document: DocumentRow, upload: Upload) -> DocumentRow:
    """Give a document and its passages an upload's tags and metadata beside their own.

    The caller holds the collection's row. Raises InvalidInput: it would have too many.
    """
    tags = list(dict.fromkeys([*document.tags, *upload.tags]))
    metadata = {**upload.metadata, **document.metadata}
    if (tags, metadata) == (list(document.tags), document.metadata):
        return document
    if len(tags) > MOST_TAGS or not is_within(metadata, MOST_METADATA):
        raise InvalidInput(
            f"The content is there as {document.name}, which would get more than {MOST_TAGS} tags "
            f"or {MOST_METADATA} characters of metadata.",
            hint="Send it without unique, or with fewer tags.",
        )
    ids = [nth_id(document.id, number) for number in range(document.chunks_done)]
    await passages.label(tx, (document.collection_id, ids), tags, metadata)
    query = f"UPDATE documents SET tags = %s, metadata = %s WHERE id = %s RETURNING {_COLUMNS}"
    return await fetch_one(tx, DocumentRow, query, [tags, Jsonb(metadata), document.id])


async def lock(tx: Transaction, document_id: UUID) -> DocumentRow:
    """Fetch one document for a change, its collection's row held too. Raises NotFound."""
    await collections.lock(tx, (await get(tx, document_id)).collection_id)
    return await _TABLE.lock(tx, document_id)


async def list_page(tx: Transaction, collection_id: UUID, page: PageQuery) -> list[DocumentRow]:
    query = f"SELECT {_COLUMNS} FROM documents WHERE collection_id = %(collection)s"
    return await paginate(tx, DocumentRow, page, query, {"collection": collection_id}, by="id")


async def file(tx: Transaction, document_id: UUID) -> bytes:
    query = "SELECT content FROM document_files WHERE document_id = %s"
    content = await fetch_value(tx, query, [document_id])
    if content is None:
        raise _no_document(document_id)
    return bytes(content)


async def text(tx: Transaction, document_id: UUID) -> Text | None:
    """What was read in a document; None if it hasn't been read yet."""
    query = "SELECT content, sections, chunks FROM document_texts WHERE document_id = %s"
    return await fetch_optional(tx, Text, query, [document_id])


@dataclass(frozen=True, slots=True)
class About:
    """What a file says of itself, and what of it could not be read."""

    pages: int | None = None
    warnings: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


async def store_text(tx: Transaction, document_id: UUID, read: Text, about: About) -> DocumentRow:
    """Keep what was read, once; what another process stored before stays, and what its sender says of it."""
    document = await lock(tx, document_id)
    await tx.execute(
        """INSERT INTO document_texts (document_id, tenant, content, sections, chunks)
           VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING""",
        [document_id, document.tenant, read.content, *map(Jsonb, (read.sections, read.chunks))],
    )
    query = f"""UPDATE documents d SET pages = %s, warnings = %s, metadata = %s, tags = %s,
                    characters = length(t.content), chunks_total = jsonb_array_length(t.chunks)
                FROM document_texts t WHERE d.id = %s AND t.document_id = d.id RETURNING {_OF_D}"""
    values = [
        about.pages,
        Jsonb(list(about.warnings)),
        Jsonb({**about.metadata, **document.metadata}),
        list(dict.fromkeys([*document.tags, *about.tags]))[:MOST_TAGS],
        document_id,
    ]
    return await fetch_one(tx, DocumentRow, query, values, _no_document(document_id))


async def start(tx: Transaction, document_id: UUID) -> DocumentRow | None:
    """Mark a document as running; None if it is gone, or not to be worked on."""
    query = f"""UPDATE documents SET state = 'running', started_at = coalesce(started_at, now())
                WHERE id = %s AND state IN ('waiting', 'running') RETURNING {_COLUMNS}"""
    return await fetch_optional(tx, DocumentRow, query, [document_id])


async def advance(
    tx: Transaction, document: DocumentRow, *, done: int, to: int
) -> DocumentRow | None:
    """Count chunks as done, in the transaction that stores their passages.

    Returns the document as it is now; None where it doesn't stand as it was seen, so that they may not be stored.
    """
    await collections.lock(tx, document.collection_id)
    return await fetch_optional(
        tx,
        DocumentRow,
        f"""UPDATE documents SET chunks_done = %(to)s, error = NULL,
               state = CASE WHEN %(to)s = chunks_total THEN 'done' ELSE state END,
               finished_at = CASE WHEN %(to)s = chunks_total THEN now() END
           WHERE id = %(document)s AND state = 'running' AND chunks_done = %(done)s
           RETURNING {_COLUMNS}""",
        {"document": document.id, "done": done, "to": to},
    )


async def agents_notified(tx: Transaction, collection_id: UUID) -> list[UUID]:
    """The agents that search a collection and want an event when a document is in it."""
    return await fetch_values(
        tx,
        """SELECT a.id FROM agents a
           WHERE (a.options ->> 'upload_events')::boolean AND (a.collection_id = %(collection)s OR EXISTS (
               SELECT FROM agent_collections l
               WHERE l.agent_id = a.id AND l.collection_id = %(collection)s))""",
        {"collection": collection_id},
    )


async def note_error(
    tx: Transaction, document_id: UUID, error: MemserverError, *, final: bool
) -> None:
    """Record what went wrong; `final` ends the work, else it is tried again."""
    body = {"code": error.code, "message": error.message, "hint": error.hint}
    await tx.execute(
        """UPDATE documents SET error = %(error)s,
               state = CASE WHEN %(final)s THEN 'failed' ELSE state END,
               finished_at = CASE WHEN %(final)s THEN now() END
           WHERE id = %(document)s AND state = 'running'""",
        {"document": document_id, "error": Jsonb(body), "final": final},
    )


async def cancel(tx: Transaction, document_id: UUID) -> DocumentRow:
    """Stop the work on a document; the passages that are stored stay. Raises Conflict: no work is left."""
    if (await lock(tx, document_id)).state not in {"waiting", "running", "cancelled"}:
        raise Conflict("The document is not being ingested any more.")
    return await _set_state(tx, document_id, "cancelled")


async def resume(tx: Transaction, document_id: UUID) -> DocumentRow:
    """Continue a failed or cancelled document where it stood. Raises Conflict: it is done."""
    document = await lock(tx, document_id)
    if document.state == "done":
        raise Conflict("The document is ingested.")
    return document if document.state == "running" else await _set_state(tx, document_id, "waiting")


async def delete(tx: Transaction, document_id: UUID) -> None:
    document = await lock(tx, document_id)
    ids = [nth_id(document_id, number) for number in range(document.chunks_done)]
    await passages.delete_many(tx, document.collection_id, ids)
    with allow_long_statements():
        await tx.execute("DELETE FROM documents WHERE id = %s", [document_id])


async def _set_state(tx: Transaction, document_id: UUID, state: State) -> DocumentRow:
    query = f"""UPDATE documents SET state = %(state)s, error = NULL,
                    finished_at = CASE WHEN %(state)s = 'cancelled' THEN now() END
                WHERE id = %(document)s RETURNING {_COLUMNS}"""
    parameters = {"document": document_id, "state": state}
    return await fetch_one(tx, DocumentRow, query, parameters, _no_document(document_id))
