"""Archival storage: passages found by meaning. Leaves vectors' tables to `storage.passages`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from memserver.embeddings.base import Embedder, Vector
from memserver.errors import EmbeddingError, InvalidInput
from memserver.memory.chunking import Span, cut_long
from memserver.memory.paging import Page, describe
from memserver.memory.text import snippet, stamp
from memserver.messages import FoundPassage, Passage
from memserver.storage import collections, passage_search, passages
from memserver.storage.collections import Collection
from memserver.storage.database import Transaction
from memserver.storage.passages import NewPassage

RESULT_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class PassageText:
    """A passage before it has a vector."""

    text: str
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ArchivalPage:
    """What a search found on one page; the total is every searchable passage."""

    found: tuple[FoundPassage, ...]
    total: int
    page: Page

    def describe(self, zone: tzinfo) -> str:
        """The answer of a search tool, its times in this zone."""
        lines = [_line(found.passage, zone) for found in self.found]
        return describe(lines, self.page, self.total)


class ArchivalStorage:
    """Inserts and searches passages. Embedding happens before the caller's transaction is needed."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    async def dimension(self) -> int:
        """Length of the embedder's vectors. Raises EmbeddingError when it can't be found out."""
        if not self.embedder.dimension:
            await self.embedder.embed(["dimension"])
        return self.embedder.dimension

    async def split(self, texts: Sequence[PassageText]) -> list[PassageText]:
        """The texts, those cut into several that the embedder would not read to their end.

        Each part has the whole one's tags and metadata, and says in its metadata which part it is.

        Raises:
            EmbeddingError: the embedder can't count.
        """
        cuts = await cut_long([text.text for text in texts], self.embedder)
        return [
            part
            for place, text in enumerate(texts)
            for part in (_parts(text, cuts[place]) if place in cuts else [text])
        ]

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Vectors for texts.

        Raises:
            InvalidInput: a text is empty.
            EmbeddingError: the embedder failed.
        """
        if not all(text.strip() for text in texts):
            raise InvalidInput("An empty text can't be stored or searched.")
        return await self.embedder.embed(texts)

    def embedder_of(self, model: str) -> Embedder:
        """The embedder of a collection's model. Raises EmbeddingError where there is none here."""
        if model == self.embedder.model:
            return self.embedder
        raise EmbeddingError(
            f"Passages here were embedded by {model}, but the embedder now is {self.embedder.model}.",
            hint="Set MEMSERVER_EMBEDDING_MODEL back, or run `memserver reembed`.",
        )

    async def insert(
        self,
        tx: Transaction,
        agent_id: UUID,
        texts: Sequence[PassageText],
        vectors: Sequence[Vector],
    ) -> list[Passage]:
        """Store passages in the agent's own collection.

        Raises:
            NotFound: no such agent.
            EmbeddingError: the collection was made with another embedding model.
        """
        collection = await self._collection(tx, agent_id)
        new = [
            NewPassage(text.text, vector, text.tags, text.metadata, text.created_at)
            for text, vector in zip(texts, vectors, strict=True)
        ]
        return await passages.insert(tx, collection.id, new, model=self.embedder.model)

    async def search(
        self, tx: Transaction, agent_id: UUID, vector: Vector, page: Page
    ) -> ArchivalPage:
        """The passages nearest to a vector. A page that doesn't exist is empty.

        Raises:
            NotFound: no such agent.
            EmbeddingError: the collection was made with another embedding model.
        """
        collection = await self._collection(tx, agent_id)
        total = collection.passage_count
        if not page.exists(total):
            return ArchivalPage((), total, page)
        found = await passage_search.search(
            tx, collection, vector, limit=page.size, offset=page.offset
        )
        return ArchivalPage(tuple(found), total, page)

    async def _collection(self, tx: Transaction, agent_id: UUID) -> Collection:
        collection = await collections.own_of(tx, agent_id)
        if collection.embedding_model != self.embedder.model:
            raise EmbeddingError(
                f"This agent's passages were embedded by {collection.embedding_model}, "
                f"but the embedder now is {self.embedder.model}.",
                hint="Set MEMSERVER_EMBEDDING_MODEL back, or insert into a new agent.",
            )
        return collection


def _parts(whole: PassageText, spans: Sequence[Span]) -> list[PassageText]:
    """A text that was cut, each part with the whole one's tags and metadata and its place in it."""
    return [
        replace(
            whole,
            text=whole.text[span.start : span.end],
            metadata={
                **(whole.metadata or {}),
                "part": number,
                "parts": len(spans),
                "start": span.start,
                "end": span.end,
            },
        )
        for number, span in enumerate(spans, 1)
    ]


def _line(passage: Passage, zone: tzinfo) -> str:
    text = snippet(passage.text, RESULT_CHARACTERS)
    return f"[{stamp(passage.created_at, zone)}] {_origin(passage.metadata)}{text}"


def _origin(metadata: Mapping[str, Any]) -> str:
    """Where a document's passage comes from, as a model reads it: (rules.pdf, page 3, Fees)."""
    name, page = metadata.get("document_name"), metadata.get("page")
    if not name:
        return ""
    parts = [name, f"page {page}" if page else "", metadata.get("heading", "")]
    return f"({', '.join(snippet(str(part), 100) for part in parts if part)}) "
