"""Bodies of requests for collections and passages."""

from typing import Annotated

from pydantic import Field

from memserver.api.schemas.agents import (
    Change,
    Language,
    LongText,
    Metadata,
    Moment,
    Name,
    RequestBody,
    UniqueName,
)


class PassageIn(RequestBody):
    """A passage for archival storage."""

    text: LongText = Field(examples=["The cello is called Hugo."])
    tags: list[Name] = Field(default_factory=list, max_length=100, examples=[["strings"]])
    metadata: Metadata = Field(default_factory=dict, examples=[{"year": 2024}])
    created_at: Moment | None = None
    expires_at: Moment | None = Field(default=None, description="Left out: never.")


class PassagesIn(RequestBody):
    """Passages to insert, all or none."""

    passages: Annotated[list[PassageIn], Field(fail_fast=True)] = Field(
        min_length=1, max_length=1000
    )


class PassagePatch(Change):
    """A change of a passage; what is left out stays. `tags` and `metadata` are replaced as a whole."""

    nullable = frozenset({"expires_at"})

    text: LongText | None = Field(default=None, examples=["The cello is called Hugo."])
    tags: list[Name] | None = Field(default=None, max_length=100, examples=[["strings"]])
    metadata: Metadata | None = Field(default=None, examples=[{"year": 2024}])
    expires_at: Moment | None = Field(default=None, description="Null: never.", examples=[None])


class CollectionIn(RequestBody):
    """A new collection that agents can share."""

    name: UniqueName = Field(
        description="Unique among the shared collections.", examples=["instruments"]
    )
    description: str = Field(default="", max_length=10_000, examples=["Who plays what."])
    metadata: Metadata = Field(default_factory=dict)
    language: Language = "auto"


class CollectionPatch(Change):
    """A change of a collection; what is left out stays. `metadata` is replaced as a whole."""

    name: UniqueName | None = Field(default=None, examples=["instruments"])
    description: str | None = Field(default=None, max_length=10_000, examples=["Who plays what."])
    metadata: Metadata | None = Field(default=None, examples=[{"source": "diary"}])
    language: Language | None = None
