"""Archival storage: passages, collections, and documents, which become passages."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import (
    ArchivalResults,
    Collection,
    Document,
    DocumentText,
    Page,
    Passage,
    Passages,
    SearchMode,
    UploadedDocument,
)
from memserver.client.requests import (
    Date,
    Id,
    JsonObject,
    Paged,
    Request,
    delete,
    get,
    given,
    new_key,
    nothing,
    patch,
    post,
)

NewPassage = str | JsonObject
"""A passage's text, or an object with `text` and, as wanted, `tags`, `metadata`, `created_at` and `expires_at`."""

_OF_AGENT = "/agents/{agent}/archival"
_COLLECTION = "/collections/{collection}"
_PASSAGE = f"{_COLLECTION}/passages/{{passage_id}}"
_DOCUMENT = "/documents/{document_id}"


class PassageFilter(TypedDict, total=False):
    """Which passages: with all of the tags `tag`, one of `any_tag`, this in their metadata, made from when to when."""

    tag: Sequence[str]
    any_tag: Sequence[str]
    metadata: JsonObject | None
    start_date: Date | None
    end_date: Date | None


class FilteredPage(PassageFilter, Paged[Id], total=False):
    """Which page of the passages that the filter lets through."""


class Archival(Resource[TransportT]):
    """An agent's archival storage, and which collections it searches."""

    @method
    def insert(self, agent: Id, passages: Sequence[NewPassage]) -> Request[Passages]:
        """Insert up to 1000 passages into the agent's own collection, all or none."""
        return post(_OF_AGENT, Passages, _passages(passages), agent=agent)

    @method
    def list(self, agent: Id, **page: Unpack[FilteredPage]) -> Request[Page[Passage, UUID]]:
        """List the passages of the agent's own collection; the filter is that of a search."""
        query = _query(page)
        return get(_OF_AGENT, Page[Passage, UUID], query, agent=agent)

    all = items(list.build)

    @method
    def search(
        self,
        agent: Id,
        query: str,
        *,
        mode: SearchMode | None = None,
        page: int = 1,
        limit: int = 10,
        **filter: Unpack[PassageFilter],
    ) -> Request[ArchivalResults]:
        """Search the agent's own collection and those attached to it, best first.

        Args:
            agent: whose.
            query: what to look for.
            mode: what finds passages; left out: the server's.
            page: from 1.
            limit: passages on a page.
            **filter: `tag`: tags that a passage must all have; `any_tag`: tags of which it must have one;
                `metadata`: what its metadata must contain; `start_date`, `end_date`: when it was made, at the
                earliest and at the latest.
        """
        asked = {"query": query, "mode": mode, **_query(filter), "page": page, "limit": limit}
        return get(f"{_OF_AGENT}/search", ArchivalResults, asked, agent=agent)

    @method
    def get(self, agent: Id, label: str) -> Request[Passage]:
        """Get one passage of what the agent searches, by its label: p17, p17@handbook."""
        return get("/agents/{agent}/passages/{label}", Passage, agent=agent, label=label)

    @method
    def delete(self, agent: Id, passage: Id) -> Request[None]:
        """Delete a passage of the agent's own collection."""
        return delete(f"{_OF_AGENT}/{{passage_id}}", agent=agent, passage_id=passage)

    @method
    def collections(self, agent: Id, **page: Unpack[Paged[Id]]) -> Request[Page[Collection, UUID]]:
        """List what the agent searches: its own collection, then those attached to it."""
        return get("/agents/{agent}/collections", Page[Collection, UUID], page, agent=agent)

    all_collections = items(collections.build)

    @method
    def attach(self, agent: Id, collection: Id) -> Request[None]:
        """Let the agent search a collection."""
        ids = {"agent": agent, "collection": collection}
        return Request("PUT", "/agents/{agent}/collections/{collection}", nothing, ids)

    @method
    def detach(self, agent: Id, collection: Id) -> Request[None]:
        """Take a collection from the agent; the collection stays."""
        path = "/agents/{agent}/collections/{collection}"
        return delete(path, agent=agent, collection=collection)


class Collections(Resource[TransportT]):
    """Collections of passages that agents can share."""

    @method
    def create(
        self,
        name: str,
        *,
        description: str | None = None,
        metadata: JsonObject | None = None,
        language: str | None = None,
    ) -> Request[Collection]:
        """Create a collection that agents can share; `language` says how words are stemmed."""
        body = given(name=name, description=description, metadata=metadata, language=language)
        return post("/collections", Collection, body)

    @method
    def list(
        self, *, name: str | None = None, **page: Unpack[Paged[Id]]
    ) -> Request[Page[Collection, UUID]]:
        """List the shared collections."""
        query = {"name": name, **page}
        return get("/collections", Page[Collection, UUID], query)

    all = items(list.build)

    @method
    def get(self, collection: Id) -> Request[Collection]:
        """Get one collection, an agent's own too."""
        return get(_COLLECTION, Collection, collection=collection)

    @method
    def update(
        self,
        collection: Id,
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: JsonObject | None = None,
        language: str | None = None,
    ) -> Request[Collection]:
        """Change a collection; what is left out stays. `metadata` is replaced as a whole."""
        body = given(name=name, description=description, metadata=metadata, language=language)
        return patch(_COLLECTION, Collection, body, collection=collection)

    @method
    def delete(self, collection: Id) -> Request[None]:
        """Delete a collection with its passages; agents it is attached to lose it."""
        return delete(_COLLECTION, collection=collection)

    @method
    def search(
        self,
        collection: Id,
        query: str,
        *,
        mode: SearchMode | None = None,
        page: int = 1,
        limit: int = 10,
        **filter: Unpack[PassageFilter],
    ) -> Request[ArchivalResults]:
        """Search one collection, best first; the arguments are those of an agent's archival search."""
        asked = {"query": query, "mode": mode, **_query(filter), "page": page, "limit": limit}
        return get(f"{_COLLECTION}/search", ArchivalResults, asked, collection=collection)


class CollectionPassages(Resource[TransportT]):
    """The passages of a collection."""

    @method
    def insert(self, collection: Id, passages: Sequence[NewPassage]) -> Request[Passages]:
        """Insert up to 1000 passages into a collection, all or none."""
        path = f"{_COLLECTION}/passages"
        return post(path, Passages, _passages(passages), collection=collection)

    @method
    def list(self, collection: Id, **page: Unpack[FilteredPage]) -> Request[Page[Passage, UUID]]:
        """List a collection's passages; the filter is that of a search."""
        query = _query(page)
        return get(f"{_COLLECTION}/passages", Page[Passage, UUID], query, collection=collection)

    all = items(list.build)

    @method
    def get(self, collection: Id, passage: Id) -> Request[Passage]:
        """Get one passage."""
        return get(_PASSAGE, Passage, collection=collection, passage_id=passage)

    @method
    def update(
        self,
        collection: Id,
        passage: Id,
        *,
        text: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: JsonObject | None = None,
        expires_at: datetime | None = None,
    ) -> Request[Passage]:
        """Change a passage; a new text is embedded again. `tags` and `metadata` are replaced as a whole."""
        labels = None if tags is None else [*tags]
        body = given(text=text, tags=labels, metadata=metadata, expires_at=expires_at)
        return patch(_PASSAGE, Passage, body, collection=collection, passage_id=passage)

    @method
    def delete(self, collection: Id, passage: Id) -> Request[None]:
        """Delete a passage."""
        return delete(_PASSAGE, collection=collection, passage_id=passage)


class Documents(Resource[TransportT]):
    """Documents: files that become passages of a collection, or of an agent's own one."""

    @method
    def upload(
        self,
        collection: Id,
        content: bytes,
        name: str | None = None,
        *,
        tags: Sequence[str] = (),
        metadata: JsonObject | None = None,
        unique: bool = False,
    ) -> Request[UploadedDocument]:
        """Ingest a file into a collection; the arguments are those for an agent's own."""
        query = {"name": name, **_query({"tags": tags, "metadata": metadata}), "unique": unique}
        return _upload(f"{_COLLECTION}/documents", content, query, collection=collection)

    @method
    def list(self, collection: Id, **page: Unpack[Paged[Id]]) -> Request[Page[Document, UUID]]:
        """List the documents of a collection."""
        return get(f"{_COLLECTION}/documents", Page[Document, UUID], page, collection=collection)

    all = items(list.build)

    @method
    def upload_to_agent(
        self,
        agent: Id,
        content: bytes,
        name: str | None = None,
        *,
        tags: Sequence[str] = (),
        metadata: JsonObject | None = None,
        unique: bool = False,
    ) -> Request[UploadedDocument]:
        """Ingest a file into the agent's own collection: PDF, Office, HTML, e-mail, tables, text and more.

        When the answer comes it is stored, and nothing can lose it; its passages follow.

        Args:
            agent: whose.
            content: the file.
            name: of the file.
            tags: of all its passages.
            metadata: of all its passages.
            unique: answer with the collection's document of the same content, if any; `is_new` says which.
                It gets these tags and metadata beside its own.
        """
        query = {"name": name, **_query({"tags": tags, "metadata": metadata}), "unique": unique}
        return _upload("/agents/{agent}/documents", content, query, agent=agent)

    @method
    def list_of_agent(self, agent: Id, **page: Unpack[Paged[Id]]) -> Request[Page[Document, UUID]]:
        """List the documents of the agent's own collection."""
        return get("/agents/{agent}/documents", Page[Document, UUID], page, agent=agent)

    all_of_agent = items(list_of_agent.build)

    @method
    def get(self, document: Id) -> Request[Document]:
        """How far a document is, and what went wrong."""
        return get(_DOCUMENT, Document, document_id=document)

    @method
    def text(self, document: Id) -> Request[DocumentText]:
        """What was read in a document."""
        return get(f"{_DOCUMENT}/text", DocumentText, document_id=document)

    @method
    def file(self, document: Id) -> Request[bytes]:
        """The file as it came."""
        return Request("GET", f"{_DOCUMENT}/file", bytes, {"document_id": document}, raw=True)

    @method
    def cancel(self, document: Id) -> Request[Document]:
        """Stop ingesting a document. The passages that are stored stay until it is deleted."""
        return post(f"{_DOCUMENT}/cancel", Document, document_id=document)

    @method
    def resume(self, document: Id) -> Request[Document]:
        """Have a document that failed or was cancelled continue where it stood."""
        return post(f"{_DOCUMENT}/resume", Document, document_id=document)

    @method
    def delete(self, document: Id) -> Request[None]:
        """Delete a document with its passages."""
        return delete(_DOCUMENT, document_id=document)


def _passages(passages: Sequence[NewPassage]) -> dict[str, Any]:
    if isinstance(passages, str):
        raise TypeError("A list of passages is wanted; put the text into one.")
    return {
        "passages": [
            {"text": passage} if isinstance(passage, str) else dict(passage) for passage in passages
        ]
    }


def _query(values: PassageFilter | JsonObject) -> dict[str, Any]:
    """As a query has it: lists repeat their name, metadata is JSON."""
    found: dict[str, Any] = {**values}
    for name in found.keys() & {"tag", "any_tag", "tags"}:
        found[name] = [*found[name]]
    if found.get("metadata") is not None:
        found["metadata"] = json.dumps(dict(found["metadata"]))
    return found


def _upload(path: str, content: bytes, query: JsonObject, **ids: Id) -> Request[UploadedDocument]:
    read = UploadedDocument.model_validate
    return Request("POST", path, read, ids, query, file=content, key=new_key())
