"""The requests for passages and collections, each once, for both clients."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from memserver.client.models import (
    ArchivalResults,
    Collection,
    Page,
    Passage,
    Passages,
    SearchMode,
)
from memserver.client.requests import (
    Date,
    Id,
    JsonObject,
    Order,
    PageRequest,
    Request,
    given,
    new_key,
    nothing,
)

NewPassage = str | JsonObject
"""A passage's text, or an object with `text` and, as wanted, `tags`, `metadata` and `created_at`."""


# --- an agent's archival storage


def insert_archival(agent: Id, passages: Sequence[NewPassage]) -> Request[Passages]:
    """Insert up to 1000 passages into the agent's own collection, all or none."""
    return Request(
        "POST",
        "/agents/{agent}/archival",
        Passages.model_validate,
        {"agent": agent},
        body=_passages(passages),
        key=new_key(),
    )


def list_archival(
    agent: Id,
    *,
    tag: Sequence[str] = (),
    any_tag: Sequence[str] = (),
    metadata: JsonObject | None = None,
    start_date: Date | None = None,
    end_date: Date | None = None,
    after: Id | None = None,
    limit: int = 50,
    order: Order | None = None,
) -> PageRequest[Passage, UUID]:
    """List the passages of the agent's own collection; the filter is that of a search."""
    return PageRequest(
        "GET",
        "/agents/{agent}/archival",
        Page[Passage, UUID].model_validate,
        {"agent": agent},
        {
            **_filter(tag, any_tag, metadata, start_date, end_date),
            "after": after,
            "limit": limit,
            "order": order,
        },
    )


def search_archival(
    agent: Id,
    query: str,
    *,
    mode: SearchMode | None = None,
    tag: Sequence[str] = (),
    any_tag: Sequence[str] = (),
    metadata: JsonObject | None = None,
    start_date: Date | None = None,
    end_date: Date | None = None,
    page: int = 1,
    limit: int = 10,
) -> Request[ArchivalResults]:
    """Search the agent's own collection and those attached to it, best first.

    Args:
        agent: whose.
        query: what to look for.
        mode: what finds passages; left out: the server's.
        tag: tags that a passage must all have.
        any_tag: tags of which it must have one.
        metadata: what its metadata must contain.
        start_date: when it was made, at the earliest.
        end_date: and at the latest.
        page: from 1.
        limit: passages on a page.
    """
    return Request(
        "GET",
        "/agents/{agent}/archival/search",
        ArchivalResults.model_validate,
        {"agent": agent},
        {
            "query": query,
            "mode": mode,
            **_filter(tag, any_tag, metadata, start_date, end_date),
            "page": page,
            "limit": limit,
        },
    )


def get_archival(agent: Id, label: str) -> Request[Passage]:
    """Get one passage of what the agent searches, by its label: p17, p17@handbook."""
    ids = {"agent": agent, "label": label}
    return Request("GET", "/agents/{agent}/passages/{label}", Passage.model_validate, ids)


def delete_archival(agent: Id, passage: Id) -> Request[None]:
    """Delete a passage of the agent's own collection."""
    ids = {"agent": agent, "passage_id": passage}
    return Request("DELETE", "/agents/{agent}/archival/{passage_id}", nothing, ids)


# --- collections, and the passages in them


def create_collection(
    name: str,
    *,
    description: str | None = None,
    metadata: JsonObject | None = None,
    language: str | None = None,
) -> Request[Collection]:
    """Create a collection that agents can share; `language` says how words are stemmed."""
    body = given(name=name, description=description, metadata=metadata, language=language)
    return Request("POST", "/collections", Collection.model_validate, body=body, key=new_key())


def list_collections(
    *, name: str | None = None, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Collection, UUID]:
    """List the shared collections."""
    query = {"name": name, "after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/collections", Page[Collection, UUID].model_validate, query=query)


def get_collection(collection: Id) -> Request[Collection]:
    """Get one collection, an agent's own too."""
    ids = {"collection": collection}
    return Request("GET", "/collections/{collection}", Collection.model_validate, ids)


def update_collection(
    collection: Id,
    *,
    name: str | None = None,
    description: str | None = None,
    metadata: JsonObject | None = None,
    language: str | None = None,
) -> Request[Collection]:
    """Change a collection; what is left out stays. `metadata` is replaced as a whole."""
    return Request(
        "PATCH",
        "/collections/{collection}",
        Collection.model_validate,
        {"collection": collection},
        body=given(name=name, description=description, metadata=metadata, language=language),
    )


def delete_collection(collection: Id) -> Request[None]:
    """Delete a collection with its passages; agents it is attached to lose it."""
    ids = {"collection": collection}
    return Request("DELETE", "/collections/{collection}", nothing, ids)


def agent_collections(
    agent: Id, *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Collection, UUID]:
    """List what the agent searches: its own collection, then those attached to it."""
    return PageRequest(
        "GET",
        "/agents/{agent}/collections",
        Page[Collection, UUID].model_validate,
        {"agent": agent},
        {"after": after, "limit": limit, "order": order},
    )


def attach_collection(agent: Id, collection: Id) -> Request[None]:
    """Let the agent search a collection."""
    ids = {"agent": agent, "collection": collection}
    return Request("PUT", "/agents/{agent}/collections/{collection}", nothing, ids)


def detach_collection(agent: Id, collection: Id) -> Request[None]:
    """Take a collection from the agent; the collection stays."""
    ids = {"agent": agent, "collection": collection}
    return Request("DELETE", "/agents/{agent}/collections/{collection}", nothing, ids)


def insert_passages(collection: Id, passages: Sequence[NewPassage]) -> Request[Passages]:
    """Insert up to 1000 passages into a collection, all or none."""
    return Request(
        "POST",
        "/collections/{collection}/passages",
        Passages.model_validate,
        {"collection": collection},
        body=_passages(passages),
        key=new_key(),
    )


def list_passages(
    collection: Id,
    *,
    tag: Sequence[str] = (),
    any_tag: Sequence[str] = (),
    metadata: JsonObject | None = None,
    start_date: Date | None = None,
    end_date: Date | None = None,
    after: Id | None = None,
    limit: int = 50,
    order: Order | None = None,
) -> PageRequest[Passage, UUID]:
    """List a collection's passages; the filter is that of a search."""
    return PageRequest(
        "GET",
        "/collections/{collection}/passages",
        Page[Passage, UUID].model_validate,
        {"collection": collection},
        {
            **_filter(tag, any_tag, metadata, start_date, end_date),
            "after": after,
            "limit": limit,
            "order": order,
        },
    )


def get_passage(collection: Id, passage: Id) -> Request[Passage]:
    """Get one passage."""
    ids = {"collection": collection, "passage_id": passage}
    return Request(
        "GET", "/collections/{collection}/passages/{passage_id}", Passage.model_validate, ids
    )


def update_passage(
    collection: Id,
    passage: Id,
    *,
    text: str | None = None,
    tags: Sequence[str] | None = None,
    metadata: JsonObject | None = None,
) -> Request[Passage]:
    """Change a passage; a new text is embedded anew. `tags` and `metadata` are replaced as a whole."""
    return Request(
        "PATCH",
        "/collections/{collection}/passages/{passage_id}",
        Passage.model_validate,
        {"collection": collection, "passage_id": passage},
        body=given(text=text, tags=None if tags is None else list(tags), metadata=metadata),
    )


def delete_passage(collection: Id, passage: Id) -> Request[None]:
    """Delete a passage."""
    ids = {"collection": collection, "passage_id": passage}
    return Request("DELETE", "/collections/{collection}/passages/{passage_id}", nothing, ids)


def search_collection(
    collection: Id,
    query: str,
    *,
    mode: SearchMode | None = None,
    tag: Sequence[str] = (),
    any_tag: Sequence[str] = (),
    metadata: JsonObject | None = None,
    start_date: Date | None = None,
    end_date: Date | None = None,
    page: int = 1,
    limit: int = 10,
) -> Request[ArchivalResults]:
    """Search one collection, best first; the arguments are those of an agent's archival search."""
    return Request(
        "GET",
        "/collections/{collection}/search",
        ArchivalResults.model_validate,
        {"collection": collection},
        {
            "query": query,
            "mode": mode,
            **_filter(tag, any_tag, metadata, start_date, end_date),
            "page": page,
            "limit": limit,
        },
    )


def _passages(passages: Sequence[NewPassage]) -> dict[str, Any]:
    if isinstance(passages, str):
        raise TypeError("A list of passages is wanted; put the text into one.")
    return {
        "passages": [
            {"text": passage} if isinstance(passage, str) else dict(passage) for passage in passages
        ]
    }


def _filter(
    tag: Sequence[str],
    any_tag: Sequence[str],
    metadata: JsonObject | None,
    start_date: Date | None,
    end_date: Date | None,
) -> dict[str, Any]:
    return {
        "tag": list(tag),
        "any_tag": list(any_tag),
        "metadata": None if metadata is None else json.dumps(dict(metadata)),
        "start_date": start_date,
        "end_date": end_date,
    }
