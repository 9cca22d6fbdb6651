"""Archival storage: passages found by meaning and by words. Leaves tables and indexes to `storage`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Protocol
from uuid import UUID

from memserver.embeddings.base import Embedder, Vector
from memserver.errors import EmbeddingError, InvalidInput
from memserver.memory.chunking import cut_long, embed_whole
from memserver.memory.fusion import fuse
from memserver.memory.language import detect_aside
from memserver.memory.paging import ResultPage, header
from memserver.memory.results import ResultReader, describe, passage_label, passage_result
from memserver.messages import PassageHit, Retriever, StoredPassage
from memserver.storage import collections, passage_search, passages
from memserver.storage.collections import CollectionRow
from memserver.storage.database import LazyTransaction, TenantScope, Transaction
from memserver.storage.passage_search import EVERYTHING, PassageConditions, Ranked
from memserver.storage.passages import NewPassage, PassageChange
from memserver.text import Span
from memserver.wire.archival import SearchMode

MOST_REACHABLE = 200  # results of a search that can be paged; each retriever finds as many at most
MOST_COUNTED = 10_000  # passages of a filter that are counted

"""What finds passages: vectors and words fused; vectors alone, as in the MemGPT paper; words alone."""
Searched = Callable[[Transaction], Awaitable[Sequence[CollectionRow]]]


class Embedders(Protocol):
    """The embedders that there are: collections may have vectors of several models."""

    def get(self, model: str, dimension: int = 0) -> Embedder:
        """The embedder of this model, of vectors this long; 0: as long as the model's are. Raises EmbeddingError."""
        ...


@dataclass(frozen=True, slots=True)
class ArchivalQuery:
    """What is looked for, and how; `mode` None is the server's."""

    text: str
    wanted: PassageConditions = EVERYTHING
    mode: SearchMode | None = None


@dataclass(frozen=True, slots=True)
class ArchivalPage:
    found: tuple[PassageHit, ...]
    # The passages that can be found. A search by words alone finds those that hold one; any other finds all
    # that the filter lets through, of which MOST_COUNTED are counted.
    total: int
    page: ResultPage  # which page it is
    mode: SearchMode
    query: str  # what was looked for

    @property
    def reachable(self) -> int:
        return min(self.total, MOST_REACHABLE)

    async def describe(self, zone: tzinfo, reader: ResultReader) -> str:
        """The answer of a search tool, its times in this zone, for who reads it."""
        results = [passage_result(each.passage, each.label, zone) for each in self.found]
        head = header(len(results), self.page, self.total, reachable=self.reachable)
        return await describe(head, results, self.query, reader)


class ArchivalStorage:
    """Inserts and searches passages; no transaction is open while texts are embedded."""

    def __init__(
        self, embedder: Embedder, embedders: Embedders | None = None, *, mode: SearchMode = "hybrid"
    ) -> None:
        """Use `embedder` for new collections, and `embedders` for those of other models."""
        self.embedder = embedder
        self.mode: SearchMode = mode
        self._embedders = embedders

    async def dimension(self) -> int:
        if not self.embedder.dimension:
            await self.embedder.embed(["dimension"])
        return self.embedder.dimension

    def embedder_of(self, model: str, dimension: int = 0) -> Embedder:
        if model == self.embedder.model:
            return self.embedder
        if self._embedders is not None:
            return self._embedders.get(model, dimension)
        raise no_embedder(model, self.embedder.model)

    async def insert(
        self,
        transaction: LazyTransaction,
        place: Callable[[Transaction], Awaitable[CollectionRow]],
        texts: Sequence[NewPassage],
    ) -> list[StoredPassage]:
        """Store passages in a collection, all or none; a text that an embedder would not read to its end is cut.

        The transaction is given back while the texts are embedded, so nothing may be in it yet.

        Raises:
            NotFound: no such collection.
            InvalidInput: a text is empty.
            EmbeddingError: the embedder failed, or the collection's model has none here.
        """
        _check_texts([text.text for text in texts])
        vectors: dict[str, list[Vector]] = {}
        spoken: list[str] = []
        while True:
            tx = await transaction.get()
            collection = await place(tx)
            if vectors:  # now its model must stay what it is
                collection = await collections.lock(tx, collection.id)
            next_model = await passages.next_model(tx, collection)
            models = {collection.embedding_model: collection.dimension}
            if next_model:
                models.setdefault(next_model, 0)
            missing = models.keys() - vectors.keys()
            if not missing:
                break
            await transaction.roll_back()
            fitting = await self._fitting(texts, models)
            if len(fitting) > len(texts):
                texts, vectors, missing = fitting, {}, set(models)
            for model in missing:
                embedder = self.embedder_of(model, models[model])
                vectors[model] = await embedder.embed([text.text for text in texts])
            spoken = await detect_aside([text.text for text in texts])
        model = collection.embedding_model
        following = vectors[next_model] if next_model else [None] * len(texts)
        new = [
            replace(text, embedding=vector, next_embedding=next_vector, language=language)
            for text, vector, next_vector, language in zip(
                texts, vectors[model], following, spoken, strict=True
            )
        ]
        return await passages.insert(tx, collection.id, new, model=model, next_model=next_model)

    async def search(
        self,
        scope: TenantScope,
        searched: Searched,
        query: ArchivalQuery,
        page: ResultPage,
    ) -> ArchivalPage:
        """A page of the passages that fit a query best. A page that doesn't exist is empty. Raises as `insert`."""
        _check_texts([query.text])
        mode = query.mode or self.mode
        vectors: dict[str, Vector] = {}
        if mode != "text":  # most collections are of this model: one transaction will do
            vectors[self.embedder.model] = await self.embedder.embed_query(query.text)

        async def find(tx: Transaction) -> ArchivalPage | dict[str, int]:
            """The page; or the models, with their dimensions, of which vectors are missing."""
            found_in = await searched(tx)
            missing = {
                c.embedding_model: c.dimension
                for c in found_in
                if c.passage_count and mode != "text" and c.embedding_model not in vectors
            }
            return missing or await _find(tx, found_in, query, mode, vectors, page)

        while isinstance(found := await scope.read(find), dict):
            for model, dimension in found.items():
                embedder = self.embedder_of(model, dimension)
                vectors[model] = await embedder.embed_query(query.text)
        return found

    async def update(
        self,
        transaction: LazyTransaction,
        collection_id: UUID,
        passage_id: UUID,
        change: PassageChange,
    ) -> StoredPassage:
        """Change a passage, and its vector, which is made here, with its text.

        The transaction is given back while the text is embedded, so nothing may be in it yet. Raises as `insert`.
        """
        if change.text is not None:
            _check_texts([change.text])
        vectors: dict[str, Vector] = {}
        while True:
            tx = await transaction.get()
            if vectors:
                collection = await collections.lock(tx, collection_id)
            else:
                collection = await collections.get(tx, collection_id)
                await passages.get(tx, collection_id, passage_id)
            model = collection.embedding_model
            next_model = await passages.next_model(tx, collection)
            missing = {model, next_model or model} - vectors.keys()
            if change.text is None or not missing:
                break
            await transaction.roll_back()
            for each in missing:
                embedder = self.embedder_of(each, collection.dimension if each == model else 0)
                [vectors[each]] = await embed_whole([change.text], embedder)
            [language] = await detect_aside([change.text])
            change = replace(change, language=language)
        if change.text is not None:
            following = vectors[next_model] if next_model else None
            change = replace(change, embedding=vectors[model], next_embedding=following)
        return await passages.update(
            tx, collection_id, passage_id, change, model=model, next_model=next_model
        )

    async def _fitting(
        self, texts: Sequence[NewPassage], models: Mapping[str, int]
    ) -> Sequence[NewPassage]:
        """The texts, those cut into several that the embedder of a model would not read to their end."""
        for model, dimension in models.items():
            embedder = self.embedder_of(model, dimension)
            cuts = await cut_long([text.text for text in texts], embedder)
            texts = [
                part
                for place, text in enumerate(texts)
                for part in (_parts(text, cuts[place]) if place in cuts else [text])
            ]
        return texts


async def _find(
    tx: Transaction,
    searched: Sequence[CollectionRow],
    query: ArchivalQuery,
    mode: SearchMode,
    vectors: Mapping[str, Vector],
    page: ResultPage,
) -> ArchivalPage:
    total = await passage_search.count(tx, searched, query.wanted, at_most=MOST_COUNTED)
    if not page.exists(min(total, MOST_REACHABLE)) and mode != "text":
        return ArchivalPage((), total, page, mode, query.text)
    depth = min(page.offset + page.size, MOST_REACHABLE) if mode == "vector" else MOST_REACHABLE
    orders: list[tuple[Retriever, Sequence[Ranked]]] = []
    for model, vector in vectors.items():
        theirs = [c for c in searched if c.passage_count and c.embedding_model == model]
        if theirs:
            nearest = await passage_search.nearest(tx, theirs, vector, query.wanted, at_most=depth)
            orders.append(("vector", nearest))
    if mode != "vector":
        words = await passage_search.by_text(tx, searched, query.text, query.wanted, at_most=depth)
        orders.append(("text", words))
    fused = fuse(orders)[:MOST_REACHABLE]
    if mode == "text":
        total = len(fused)
    shown = fused[page.offset : page.offset + page.size] if page.number >= 1 else []
    stored = await passage_search.fetch(tx, [hit.ranked for hit in shown])
    found = tuple(
        PassageHit(passage, hit.score, hit.sources, label_of(passage, searched))
        for hit in shown
        if (passage := stored.get(hit.ranked.passage_id)) is not None
    )
    return ArchivalPage(found, total, page, mode, query.text)


def label_of(passage: StoredPassage, searched: Sequence[CollectionRow]) -> str:
    """What an agent calls a passage of one of these collections, of which its own is the first."""
    first, named = searched[0], {str(collection.id): collection.name for collection in searched}
    if first.own and str(first.id) == passage.collection_id:
        return passage_label(passage.number)
    return passage_label(passage.number, named[passage.collection_id])


def no_embedder(model: str, current: str) -> EmbeddingError:
    return EmbeddingError(
        f"These passages were embedded by {model}, but the embedder now is {current}.",
        hint="Set MEMSERVER_EMBEDDING_MODEL back, or run `memserver reembed`, which gives the collection "
        "vectors of the new model.",
    )


def _check_texts(texts: Sequence[str]) -> None:
    if not all(text.strip() for text in texts):
        raise InvalidInput("An empty text can't be stored or searched.")


def _parts(whole: NewPassage, spans: Sequence[Span]) -> list[NewPassage]:
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
