"""Documents as the API shows them."""

from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field

from memserver.api.schemas.agents import ErrorBody
from memserver.storage.documents import Document, Text


class DocumentOut(BaseModel):
    """A file that was taken in, or how far it is."""

    id: UUID
    collection_id: UUID
    name: str = Field(examples=["manual.pdf"])
    kind: Literal["text", "markdown", "html", "pdf", "docx", "jsonl"] = Field(
        description="What the content was found to be.", examples=["pdf"]
    )
    bytes: int = Field(examples=[48213])
    tags: list[str] = Field(examples=[["manual"]])
    metadata: dict[str, Any]
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = Field(examples=["done"])
    error: ErrorBody | None = Field(
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

    @classmethod
    def read(cls, document: Document) -> Self:
        """From a stored document."""
        names = set(cls.model_fields) - {"error"}
        values = {name: getattr(document, name) for name in names}
        error = ErrorBody(**document.error) if document.error else None
        return cls(**values, error=error)


class DocumentPage(BaseModel):
    """A page of documents; `next` is the cursor of the following page, or null."""

    items: list[DocumentOut]
    next: UUID | None


class DocumentText(BaseModel):
    """What was read in a document; its passages' `start` and `end` count this text's characters."""

    text: str = Field(examples=["How to tune a cello."])

    @classmethod
    def read(cls, text: Text) -> Self:
        """From a stored text."""
        return cls(text=text.content)
