"""Passages, collections, and what a search finds."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memserver.client.models.base import Record

SearchMode = Literal["hybrid", "vector", "text"]


class Passage(Record):
    """A passage of archival storage; `number` counts within its collection."""

    id: UUID
    number: int
    collection_id: UUID
    text: str
    tags: list[str]
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class Source(Record):
    """Which retriever found a passage, at which place, with what score of its own."""

    retriever: Literal["vector", "text"]
    rank: int
    score: float


class FoundPassage(Passage):
    """A passage that a search found.

    Attributes:
        score: orders the results.
        sources: which retrievers found it.
        label: what an agent calls it.
        excerpt: what matched, between `**`, with its surroundings.
        page: the page of its document on which that stands, where that is known.
    """

    score: float
    sources: list[Source]
    label: str
    excerpt: str
    page: int | None


class Passages(Record):
    """Passages as they were stored, in the order of the request."""

    items: list[Passage]


class ArchivalResults(Record):
    """One page of an archival search, best first.

    Attributes:
        items: what was found.
        total: how many passages could be found.
        reachable: how many of them, the best, can be paged.
        page: of this page, from 1.
        pages: how many there are.
        mode: which retrievers looked.
    """

    items: list[FoundPassage]
    total: int
    reachable: int
    page: int
    pages: int
    mode: SearchMode


class Collection(Record):
    """A collection of passages; `own` is whether it is an agent's own."""

    id: UUID
    name: str
    own: bool
    description: str
    metadata: dict[str, Any]
    language: str
    languages: list[str]
    embedding_model: str
    dimension: int
    passage_count: int
    created_at: datetime
    updated_at: datetime
