"""Finding passages: by vector, by words, under a filter. Leaves fusing what was found to `memory.archival`.

The functions that do it in the database are those of the migration 0003: they name the tenant themselves,
since row-level security keeps the planner off the indexes that they need.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector
from psycopg.types.json import Jsonb

from memserver.messages import StoredPassage
from memserver.storage.collections import CollectionRow
from memserver.storage.database import Transaction
from memserver.storage.passages import COLUMNS, check_vector, read_passage
from memserver.storage.rows import PageQuery, fetch_all, fetch_value

MOST_CANDIDATES = 4000
"""Passages whose words are compared, in a collection that has many; common words don't add to them."""
FEW = 10_000
"""Passages of a filter up to which it is applied first and the rest compared one by one."""
_BREADTH = ((20_000, 120), (200_000, 160))
_WIDEST = 400
"""What HNSW keeps in sight (ef_search) grows with the collection, so that recall doesn't fall."""


@dataclass(frozen=True, slots=True)
class PassageConditions:
    """Which passages a search or a list may give; what is left empty lets all through."""

    any_tags: Sequence[str] = ()  # with one of these tags at least
    all_tags: Sequence[str] = ()  # with every one of these
    # Whose metadata contains this, as Postgres' jsonb `@>`
    metadata: Mapping[str, Any] = field(default_factory=dict)
    since: datetime | None = None  # created then or later
    until: datetime | None = None  # created before then

    def __bool__(self) -> bool:
        return any((self.any_tags, self.all_tags, self.metadata, self.since, self.until))

    def to_json(self) -> Jsonb:
        given: dict[str, Any] = {
            "any_tags": list(self.any_tags),
            "all_tags": list(self.all_tags),
            "metadata": dict(self.metadata),
        }
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None:
                given[name] = moment.isoformat()
        return Jsonb(given)


EVERYTHING = PassageConditions()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage that a retriever found, with its score there."""

    collection_id: UUID
    passage_id: UUID
    score: float


async def nearest(
    tx: Transaction,
    searched: Sequence[CollectionRow],
    embedding: Sequence[float],
    wanted: PassageConditions,
    *,
    at_most: int,
) -> list[Ranked]:
    """The passages nearest to a vector by cosine similarity, best first; the collections are of one model.

    Exact where the collection is small or the filter lets few through, else by its HNSW index.
    """
    found: list[Ranked] = []
    together: dict[str, list[UUID]] = {}
    vector = HalfVector(list(embedding))
    for collection in searched:
        check_vector(collection, collection.embedding_model, embedding)
        if not collection.has_own_table:
            together.setdefault(collection.vectors_table, []).append(collection.id)
        else:
            breadth = max(at_most, _breadth(collection.passage_count))
            found += await fetch_all(
                tx,
                Ranked,
                "SELECT collection_id, passage_id, 1 - distance AS score "
                "FROM nearest_by_index(%s, %b, %s, %s, %s, %s)",
                [collection.id, vector, wanted.to_json(), at_most, breadth, FEW],
            )
    for table, ids in together.items():
        found += await fetch_all(
            tx,
            Ranked,
            "SELECT collection_id, passage_id, 1 - distance AS score "
            "FROM nearest_one_by_one(%s, %s, %b, %s, %s)",
            [table, ids, vector, wanted.to_json(), at_most],
        )
    return _best(found, at_most)


async def by_text(
    tx: Transaction,
    searched: Sequence[CollectionRow],
    query: str,
    wanted: PassageConditions,
    *,
    at_most: int,
) -> list[Ranked]:
    """The passages that hold words of the query, best first: Postgres' full text, weighed as BM25 does."""
    found: list[Ranked] = []
    for ids in _searched_together(searched):
        found += await fetch_all(
            tx,
            Ranked,
            "SELECT collection_id, passage_id, score FROM rank_by_text(%s, %s, %s, %s, %s)",
            [ids, query, wanted.to_json(), at_most, MOST_CANDIDATES],
        )
    return _best(found, at_most)


async def count(
    tx: Transaction, searched: Sequence[CollectionRow], wanted: PassageConditions, *, at_most: int
) -> int:
    """How many passages can be found; under a filter counting ends at `at_most`."""
    if not wanted:
        return sum(collection.passage_count for collection in searched)
    ids = [collection.id for collection in searched]
    query = "SELECT count_matching(%s, %s, %s)"
    return int(await fetch_value(tx, query, [ids, wanted.to_json(), at_most]))


async def list_page(
    tx: Transaction, collection_id: UUID, page: PageQuery, wanted: PassageConditions = EVERYTHING
) -> list[StoredPassage]:
    return await fetch_all(
        tx,
        read_passage,
        f"SELECT {COLUMNS} FROM list_matching(%s, %s, %s, %s, %s) p",
        [[collection_id], wanted.to_json(), page.after, page.limit, page.descending],
    )


async def fetch(tx: Transaction, found: Sequence[Ranked]) -> dict[UUID, StoredPassage]:
    """The passages by their ids; one that was deleted meanwhile is not among them."""
    stored = await fetch_all(
        tx,
        read_passage,
        f"""SELECT {COLUMNS} FROM passages p
            JOIN unnest(%s::uuid[], %s::uuid[]) AS f (collection_id, id) USING (collection_id, id)""",
        [[ranked.collection_id for ranked in found], [ranked.passage_id for ranked in found]],
    )
    return {UUID(passage.id): passage for passage in stored}


def _searched_together(searched: Sequence[CollectionRow]) -> list[list[UUID]]:
    """Small collections of one language together, a large one alone: its common words are known."""
    small: dict[str, list[UUID]] = {}
    large = []
    for collection in searched:
        if collection.words_counted:
            large.append([collection.id])
        else:
            small.setdefault(collection.language, []).append(collection.id)
    return [*small.values(), *large]


def _breadth(passages: int) -> int:
    return next((breadth for limit, breadth in _BREADTH if passages <= limit), _WIDEST)


def _best(found: list[Ranked], at_most: int) -> list[Ranked]:
    return sorted(found, key=lambda ranked: (-ranked.score, ranked.passage_id))[:at_most]
