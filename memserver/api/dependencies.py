"""What routes ask for: the services, and whose request it is."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, cast
from uuid import UUID

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator

from memserver.api.middleware.access import Caller
from memserver.errors import InvalidInput, ServerStarting
from memserver.storage import agents, collections
from memserver.storage.api_keys import TENANT_PATTERN
from memserver.storage.database import Transaction
from memserver.storage.rows import PageQuery
from memserver.text import clean
from memserver.wire.base import Page, Record
from memserver.wiring.services import Services

Item = TypeVar("Item")
Cursor = TypeVar("Cursor")
Shown = TypeVar("Shown", bound=Record)
Place = TypeVar("Place", bound=UUID | int | str)


def _services_of(request: Request) -> Services:
    services = cast("Services | None", getattr(request.app.state, "services", None))
    if services is None:
        raise ServerStarting
    return services


def _caller_of(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


# FastAPI runs what isn't a coroutine in a thread.
async def _services(request: Request) -> Services:
    return _services_of(request)


async def _caller(request: Request) -> Caller:
    return _caller_of(request)


async def _tenant(request: Request) -> str:
    return _caller_of(request).tenant


async def _begin(request: Request) -> Callable[[], AbstractAsyncContextManager[Transaction]]:
    services, tenant = await _services(request), await _tenant(request)
    return lambda: services.database.tenant(tenant)


BeginDep = Annotated[Callable[[], AbstractAsyncContextManager[Transaction]], Depends(_begin)]
"""Begins a transaction of the caller's tenant."""
ServicesDep = Annotated[Services, Depends(_services)]
CallerDep = Annotated[Caller, Depends(_caller)]
TenantDep = Annotated[str, Depends(_tenant)]
PathText = Annotated[str, AfterValidator(clean)]
"""A text in a path or a query, without what Postgres can't take."""
_NAMED = "Its id, or its name; what has the form of an id is one."


async def _agent_id(
    request: Request, agent: Annotated[PathText, Path(max_length=200, description=_NAMED)]
) -> UUID:
    return await _id_of(agent, agents.id_of, request)


async def _agent_filter(
    request: Request,
    agent: Annotated[
        PathText | None, Query(max_length=200, description=f"{_NAMED} Left out: of all agents.")
    ] = None,
) -> UUID | None:
    return None if agent is None else await _id_of(agent, agents.id_of, request)


async def _collection_id(
    request: Request, collection: Annotated[PathText, Path(max_length=200, description=_NAMED)]
) -> UUID:
    return await _id_of(collection, collections.id_of, request)


async def _id_of(
    given: str, find: Callable[[Transaction, str], Awaitable[UUID]], request: Request
) -> UUID:
    """The id that was given, which costs nothing, or that of the thing of this name. Raises NotFound."""
    try:
        return UUID(given)
    except ValueError:
        async with _services_of(request).database.tenant(_caller_of(request).tenant) as tx:
            return await find(tx, given)


AgentId = Annotated[UUID, Depends(_agent_id)]
AgentFilter = Annotated[UUID | None, Depends(_agent_filter)]
CollectionId = Annotated[UUID, Depends(_collection_id)]
Limit = Annotated[int, Query(ge=1, le=100, description="Items on a page.")]
Order = Annotated[
    Literal["asc", "desc"],
    Query(description="asc: as they were made, or by name; desc: the other way round."),
]
_AFTER = "The `next` of the page before, of a request with the same order and filters."
PageNumber = Annotated[
    int, Query(description="From 1; a page that does not exist is empty.", ge=-(2**53), le=2**53)
]


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a list, as a request asks for it: `limit`, `after` and `order` are the same for all lists.

    Attributes:
        query: what is to be read: one item more than the page has, which says whether another page follows.
    """

    query: PageQuery

    @classmethod
    def of(cls, after: UUID | str | int | None, limit: int, order: str) -> "Listing":
        return cls(PageQuery(limit + 1, after, order == "desc"))

    def is_after(self, name: str) -> bool:
        if self.query.after is None:
            return True
        after: str = self.query.after
        return name < after if self.query.descending else name > after

    def split(
        self, found: Sequence[Item], cursor: Callable[[Item], Cursor]
    ) -> tuple[Sequence[Item], Cursor | None]:
        """The page's items, of those that were read, and where the next page begins, if there is one."""
        limit = self.query.limit - 1
        return found[:limit], cursor(found[limit - 1]) if len(found) > limit else None

    def page(
        self, kind: type[Page[Shown, Place]], found: Sequence[Item], cursor: Callable[[Item], Place]
    ) -> Page[Shown, Place]:
        items, more = self.split(found, cursor)
        return kind.model_validate({"items": items, "next": more})

    def paginate(
        self, whole: Sequence[Item], cursor: Callable[[Item], Cursor]
    ) -> tuple[Sequence[Item], Cursor | None]:
        """The same of a list that is short and was read as a whole. Raises InvalidInput."""
        found = list(reversed(whole)) if self.query.descending else list(whole)
        if self.query.after is not None:
            places = [place for place, each in enumerate(found) if cursor(each) == self.query.after]
            if not places:
                raise InvalidInput("after: the list has no such item.", hint="Begin again.")
            found = found[places[0] + 1 :]
        return self.split(found, cursor)


def _by_id(
    after: Annotated[UUID | None, Query(description=_AFTER)] = None,
    limit: Limit = 50,
    order: Order = "asc",
) -> Listing:
    return Listing.of(after, limit, order)


def _by_name(
    after: Annotated[str | None, Query(max_length=200, description=_AFTER)] = None,
    limit: Limit = 50,
    order: Order = "asc",
) -> Listing:
    return Listing.of(clean(after) if after is not None else None, limit, order)


def _by_tenant(
    after: Annotated[str | None, Query(pattern=TENANT_PATTERN, description=_AFTER)] = None,
    limit: Limit = 50,
    order: Order = "asc",
) -> Listing:
    return Listing.of(after, limit, order)


def _newest_first(
    after: Annotated[int | None, Query(ge=0, le=2**62, description=_AFTER)] = None,
    limit: Limit = 50,
    order: Order = "desc",
) -> Listing:
    return Listing.of(after, limit, order)


ById = Annotated[Listing, Depends(_by_id)]
"""A list in the order in which its items were made."""
ByName = Annotated[Listing, Depends(_by_name)]
ByTenant = Annotated[Listing, Depends(_by_tenant)]
NewestFirst = Annotated[Listing, Depends(_newest_first)]
"""A history: by numbers, from the newest on unless it is asked for the other way round."""
