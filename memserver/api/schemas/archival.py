"""Collections and passages as the API's models."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import (
    BaseModel,
    Field,
)

from memserver.api.schemas.agents import Language, LongText, Metadata, Moment, Name, Request
from memserver.memory.archival import ArchivalPage, SearchMode
from memserver.memory.results import Excerpt
from memserver.messages import FoundPassage, Passage, Retriever
from memserver.storage.collections import Collection


class PassageIn(Request):
    """A passage for archival storage."""

    text: LongText = Field(examples=["The cello is called Hugo."])
    tags: list[Name] = Field(default_factory=list, max_length=100, examples=[["strings"]])
    metadata: Metadata = Field(default_factory=dict, examples=[{"year": 2024}])
    created_at: Moment | None = None


class PassagesIn(Request):
    """Passages to insert, all or none."""

    passages: Annotated[list[PassageIn], Field(fail_fast=True)] = Field(
        min_length=1, max_length=1000
    )


class PassageOut(BaseModel):
    """A passage."""

    id: UUID
    number: int = Field(description="It counts within its collection.", examples=[17])
    collection_id: UUID
    text: str = Field(examples=["The cello is called Hugo."])
    tags: list[str] = Field(examples=[["strings"]])
    metadata: dict[str, Any] = Field(examples=[{"year": 2024}])
    created_at: datetime
    updated_at: datetime

    @classmethod
    def read(cls, passage: Passage) -> Self:
        """From a stored passage."""
        return cls(**_passage_fields(passage))


class SourceOut(BaseModel):
    """Which retriever found a passage, at which place, with what score of its own."""

    retriever: Retriever
    rank: int = Field(examples=[1])
    score: float = Field(
        description="Of vector: cosine similarity, -1 to 1. Of text: unbounded.", examples=[0.83]
    )


class FoundPassageOut(PassageOut):
    """A passage that a search found, with its score and where that comes from."""

    score: float = Field(examples=[0.33])
    sources: list[SourceOut]
    label: str = Field(description="What an agent calls it.", examples=["p17"])
    excerpt: str = Field(
        description="What matched, between `**`, with its surroundings.",
        examples=["The **cello** is called Hugo."],
    )
    page: int | None = Field(
        description="The page of its document on which that stands, where that is known.",
        examples=[3],
    )

    @classmethod
    def of(cls, found: FoundPassage, excerpt: Excerpt) -> Self:
        """From what a search found."""
        return cls(
            **_passage_fields(found.passage),
            score=found.score,
            label=found.label,
            excerpt=excerpt.text,
            page=excerpt.page,
            sources=[
                SourceOut(retriever=source.retriever, rank=source.rank, score=source.score)
                for source in found.sources
            ],
        )


def _passage_fields(passage: Passage) -> dict[str, Any]:
    return {
        "id": UUID(passage.id),
        "number": passage.number,
        "collection_id": UUID(passage.collection_id),
        "text": passage.text,
        "tags": list(passage.tags),
        "metadata": dict(passage.metadata),
        "created_at": passage.created_at,
        "updated_at": passage.updated_at,
    }


class PassagesOut(BaseModel):
    """Passages as they were stored, in the order of the request."""

    items: list[PassageOut]


class PassagePage(BaseModel):
    """A page of passages; `next` is the cursor of the following page, or null."""

    items: list[PassageOut]
    next: UUID | None


class ArchivalResults(BaseModel):
    """One page of an archival search, best first."""

    items: list[FoundPassageOut]
    total: int = Field(
        description="The passages that can be found. A search by words alone finds those that hold one; "
        "any other all that the filter lets through, of which 10,000 are counted.",
        examples=[1],
    )
    reachable: int = Field(description="How many of them, the best, can be paged.", examples=[1])
    page: int = Field(examples=[1])
    pages: int = Field(examples=[1])
    mode: SearchMode

    @classmethod
    def read(cls, found: ArchivalPage, shown: Sequence[Excerpt]) -> Self:
        """From what was found, and what matched of each."""
        pairs = zip(found.found, shown, strict=True)
        return cls(
            items=[FoundPassageOut.of(*pair) for pair in pairs],
            total=found.total,
            reachable=found.reachable,
            page=found.page.number,
            pages=found.page.pages(found.reachable),
            mode=found.mode,
        )


class PassagePatch(Request):
    """A change of a passage; what is left out stays. `tags` and `metadata` are replaced as a whole."""

    text: LongText | None = Field(default=None, examples=["The cello is called Hugo."])
    tags: list[Name] | None = Field(default=None, max_length=100, examples=[["strings"]])
    metadata: Metadata | None = Field(default=None, examples=[{"year": 2024}])


class CollectionIn(Request):
    """A new collection that agents can share."""

    name: Name = Field(description="Unique among the shared collections.", examples=["instruments"])
    description: str = Field(default="", max_length=10_000, examples=["Who plays what."])
    metadata: Metadata = Field(default_factory=dict)
    language: Language = "auto"


class CollectionPatch(Request):
    """A change of a collection; what is left out stays. `metadata` is replaced as a whole."""

    name: Name | None = Field(default=None, examples=["instruments"])
    description: str | None = Field(default=None, max_length=10_000, examples=["Who plays what."])
    metadata: Metadata | None = Field(default=None, examples=[{"source": "diary"}])
    language: Language | None = None


class CollectionOut(BaseModel):
    """A collection."""

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
    updated_at: datetime = Field(description="Of it or of its passages.")

    @classmethod
    def read(cls, collection: Collection) -> Self:
        """From a stored collection."""
        names = set(cls.model_fields) - {"updated_at"}
        values = {name: getattr(collection, name) for name in names}
        return cls(**values, updated_at=collection.edited_at)


class CollectionPage(BaseModel):
    """A page of collections; `next` is the cursor of the following page, or null."""

    items: list[CollectionOut]
    next: UUID | None
