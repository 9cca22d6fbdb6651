"""The requests for documents, each once, for both clients."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from memserver.client.models import Document, DocumentText, Page
from memserver.client.requests import Id, JsonObject, Order, PageRequest, Request, new_key, nothing


def upload_to_agent(
    agent: Id,
    content: bytes,
    name: str | None = None,
    *,
    tags: Sequence[str] = (),
    metadata: JsonObject | None = None,
    unique: bool = False,
) -> Request[Document]:
    """Take a file into the agent's own collection: text, Markdown, HTML, PDF, DOCX or JSON Lines.

    When the answer comes it is stored, and nothing can lose it; its passages follow.

    Args:
        agent: whose.
        content: the file.
        name: of the file.
        tags: of all its passages.
        metadata: of all its passages.
        unique: answer with the collection's document of the same content, if any.
    """
    return Request(
        "POST",
        "/agents/{agent}/documents",
        Document.model_validate,
        {"agent": agent},
        _about(name, tags, metadata, unique),
        file=content,
        key=new_key(),
    )


def upload_to_collection(
    collection: Id,
    content: bytes,
    name: str | None = None,
    *,
    tags: Sequence[str] = (),
    metadata: JsonObject | None = None,
    unique: bool = False,
) -> Request[Document]:
    """Take a file into a collection; the arguments are those for an agent's own."""
    return Request(
        "POST",
        "/collections/{collection}/documents",
        Document.model_validate,
        {"collection": collection},
        _about(name, tags, metadata, unique),
        file=content,
        key=new_key(),
    )


def list_documents_of_agent(
    agent: Id, *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Document, UUID]:
    """List the documents of the agent's own collection."""
    return PageRequest(
        "GET",
        "/agents/{agent}/documents",
        Page[Document, UUID].model_validate,
        {"agent": agent},
        {"after": after, "limit": limit, "order": order},
    )


def list_documents_of_collection(
    collection: Id, *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Document, UUID]:
    """List the documents of a collection."""
    return PageRequest(
        "GET",
        "/collections/{collection}/documents",
        Page[Document, UUID].model_validate,
        {"collection": collection},
        {"after": after, "limit": limit, "order": order},
    )


def get_document(document: Id) -> Request[Document]:
    """How far a document is, and what went wrong."""
    return Request("GET", _ONE, Document.model_validate, {"document_id": document})


def get_document_text(document: Id) -> Request[DocumentText]:
    """What was read in a document."""
    ids = {"document_id": document}
    return Request("GET", f"{_ONE}/text", DocumentText.model_validate, ids)


def get_document_file(document: Id) -> Request[bytes]:
    """The file as it came."""
    return Request("GET", f"{_ONE}/file", bytes, {"document_id": document}, raw=True)


def cancel_document(document: Id) -> Request[Document]:
    """Stop taking a document in. The passages that are stored stay until it is deleted."""
    ids = {"document_id": document}
    return Request("POST", f"{_ONE}/cancel", Document.model_validate, ids, key=new_key())


def resume_document(document: Id) -> Request[Document]:
    """Have a document that failed or was cancelled go on where it stood."""
    ids = {"document_id": document}
    return Request("POST", f"{_ONE}/resume", Document.model_validate, ids, key=new_key())


def delete_document(document: Id) -> Request[None]:
    """Delete a document with its passages."""
    return Request("DELETE", _ONE, nothing, {"document_id": document})


_ONE = "/documents/{document_id}"


def _about(
    name: str | None, tags: Sequence[str], metadata: JsonObject | None, unique: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "tags": list(tags),
        "metadata": None if metadata is None else json.dumps(dict(metadata)),
        "unique": unique,
    }
