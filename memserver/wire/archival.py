"""Passages, collections, and what a search finds; documents: files that become passages."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from memserver.wire.base import ErrorDetails, Record, stored_as

SearchMode = Literal["hybrid", "vector", "text"]


class Passage(Record):
    """A passage of archival storage."""

    id: UUID
    number: int = Field(description="It counts within its collection.", examples=[17])
    collection_id: UUID
    text: str = Field(examples=["The cello is called Hugo."])
    tags: list[str] = Field(examples=[["strings"]])
    metadata: dict[str, Any] = Field(examples=[{"year": 2024}])
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = Field(
        default=None, description="When it is deleted.", examples=[None]
    )


class Source(Record):
    """Which retriever found a passage, at which place, with what score of its own."""

    retriever: Literal["vector", "text"]
    rank: int = Field(examples=[1])
    score: float = Field(
        description="Of vector: cosine similarity, -1 to 1. Of text: unbounded.", examples=[0.83]
    )


class FoundPassage(Passage):
    """A passage that a search found, with its score and where that comes from."""

    score: float = Field(examples=[0.33])
    sources: list[Source]
    label: str = Field(description="What an agent calls it.", examples=["p17"])
    excerpt: str = Field(
        description="What matched, between `**`, with its surroundings.",
        examples=["The **cello** is called Hugo."],
    )
    page: int | None = Field(
        description="The page of its document on which that stands, where that is known.",
        examples=[3],
    )


class Passages(Record):
    """Passages as they were stored, in the order of the request."""

    items: list[Passage]


class ArchivalResults(Record):
    """One page of an archival search, best first."""

    items: list[FoundPassage]
    total: int = Field(
        description="The passages that can be found. A search by words alone finds those that hold one; "
        "any other all that the filter lets through, of which 10,000 are counted.",
        examples=[1],
    )
    reachable: int = Field(description="How many of them, the best, can be paged.", examples=[1])
    page: int = Field(description="From 1.", examples=[1])
    pages: int = Field(examples=[1])
    mode: SearchMode


class Collection(Record):
    """A collection of passages."""

    id: UUID
    name: str = Field(examples=["instruments"])
    own: bool = Field(description="Whether it is an agent's own.")
    description: str = Field(examples=["Who plays what."])
    metadata: dict[str, Any]
    language: str = Field(examples=["auto"])
    languages: list[str] = Field(
        description="Beside english, that passages are in where the language is 'auto'.",
        examples=[["german"]],
    )
    embedding_model: str = Field(examples=["all-MiniLM-L6-v2"])
    dimension: int = Field(examples=[384])
    passage_count: int = Field(examples=[1])
    created_at: datetime
    updated_at: datetime = Field(
        description="Of it or of its passages.",
        validation_alias=stored_as("updated_at", "edited_at"),
    )


class Document(Record):
    """A file that becomes passages, and how far it is."""

    id: UUID
    collection_id: UUID
    name: str = Field(examples=["manual.pdf"])
    kind: str = Field(description="What the content was found to be.", examples=["pdf"])
    bytes: int = Field(examples=[48213])
    tags: list[str] = Field(description="Of all its passages.", examples=[["manual"]])
    metadata: dict[str, Any] = Field(description="Of all its passages.")
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = Field(examples=["done"])
    error: ErrorDetails | None = Field(
        description="Why it failed; while it is running, what went wrong last and is tried again.",
        examples=[None],
    )
    warnings: list[str] = Field(description="What in the file could not be read.", examples=[[]])
    pages: int | None = Field(description="Of a PDF, once it has been read.", examples=[12])
    characters: int | None = Field(
        description="Of its text, once it has been read.", examples=[21034]
    )
    chunks_done: int = Field(description="Passages that are stored.", examples=[31])
    chunks_total: int | None = Field(
        description="Passages that it becomes, once it has been read.", examples=[31]
    )
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class UploadedDocument(Document):
    """A document that a file became, or with `unique` the one that has its content already."""

    is_new: bool = Field(
        default=True,
        description="False, with `unique`: its content was there. The document has the upload's tags and metadata, too.",
        examples=[True],
    )


class DocumentText(Record):
    """What was read in a document; its passages' `start` and `end` count this text's characters."""

    text: str = Field(
        examples=["How to tune a cello."], validation_alias=stored_as("text", "content")
    )
