"""What the routes of an agent's archival storage and of a collection have in common."""

from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query

from memserver import messages
from memserver.api.dependencies import Listing, PageNumber
from memserver.api.schemas.answers import archival_results
from memserver.api.schemas.archival import PassagesIn
from memserver.api.uploads import parse_metadata
from memserver.memory import paging
from memserver.memory.archival import ArchivalQuery, Searched
from memserver.memory.dates import parse_range
from memserver.memory.results import excerpts, passage_result
from memserver.storage import collections
from memserver.storage.database import LazyTransaction, TenantScope, Transaction
from memserver.storage.passage_search import PassageConditions
from memserver.storage.passages import NewPassage
from memserver.text import clean
from memserver.wire.archival import ArchivalResults, Passage, Passages, SearchMode
from memserver.wire.base import Page
from memserver.wiring.services import Services

Tags = Annotated[list[str] | None, Query(max_length=100, description="May be repeated.")]
Date = Annotated[str | None, Query(max_length=40, description="ISO date or datetime; today; now.")]


class Filters:
    def __init__(
        self,
        tag: Tags = None,
        any_tag: Tags = None,
        metadata: Annotated[
            str | None,
            Query(
                max_length=10_000,
                description="A JSON object that the passage's metadata must contain.",
            ),
        ] = None,
        start_date: Date = None,
        end_date: Date = None,
    ) -> None:
        self._all_tags = [clean(name) for name in tag or ()]
        self._any_tags = [clean(name) for name in any_tag or ()]
        self._metadata = parse_metadata(metadata)
        self._dates = (start_date, end_date)

    def read(self, services: Services) -> PassageConditions:
        """The filter, its dates read by the server's clock. Raises InvalidInput."""
        start, end = self._dates
        since = until = None
        if start is not None or end is not None:
            now = services.deps.clock()
            since, until = parse_range(start or "0001-01-01", end or "9999-12-30", now)
        return PassageConditions(
            self._any_tags,
            self._all_tags,
            self._metadata,
            since if start is not None else None,
            until if end is not None else None,
        )


class Search:
    def __init__(
        self,
        query: Annotated[
            str, Query(min_length=1, max_length=1000, description="What to look for.")
        ],
        mode: Annotated[
            SearchMode | None, Query(description="What finds passages; left out: the server's.")
        ] = None,
        page: PageNumber = 1,
        limit: Annotated[
            int, Query(ge=1, le=100, description="Items on a page.")
        ] = paging.PAGE_SIZE,
    ) -> None:
        self._query = clean(query)
        self._mode = mode
        self._page = paging.ResultPage(page, limit)

    async def answer(
        self, services: Services, tenant: str, searched: Searched, filters: Filters
    ) -> ArchivalResults:
        archival_query = ArchivalQuery(self._query, filters.read(services), self._mode)
        scope = TenantScope(services.database, tenant)
        found = await services.archival.search(scope, searched, archival_query, self._page)
        results = [passage_result(each.passage, each.label, UTC) for each in found.found]
        return archival_results(found, await excerpts(results, self._query))


FiltersDep = Annotated[Filters, Depends()]
SearchDep = Annotated[Search, Depends()]


async def insert(
    services: Services,
    tenant: str,
    place: Callable[[Transaction], Awaitable[collections.CollectionRow]],
    new: PassagesIn,
) -> Passages:
    texts = [
        NewPassage(
            text=passage.text,
            tags=passage.tags,
            metadata=passage.metadata,
            created_at=passage.created_at,
            expires_at=passage.expires_at,
        )
        for passage in new.passages
    ]
    async with LazyTransaction(services.database, tenant) as transaction:
        stored = await services.archival.insert(transaction, place, texts)
    return Passages(items=[Passage.model_validate(passage) for passage in stored])


def as_page(found: list[messages.StoredPassage], listing: Listing) -> Page[Passage, UUID]:
    return listing.page(Page[Passage, UUID], found, lambda passage: UUID(passage.id))
