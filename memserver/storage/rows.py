"""Rows read as values: one, all, or a page of a list. A value is made of a row's columns by their names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import sql
from psycopg.rows import kwargs_row, scalar_row

from memserver.storage.database import Transaction

T = TypeVar("T")
Query = str | sql.Composed
Parameters = Sequence[Any] | Mapping[str, Any]


async def fetch_all(
    tx: Transaction, kind: Callable[..., T], query: Query, parameters: Parameters = ()
) -> list[T]:
    cursor = tx.cursor(row_factory=kwargs_row(kind))
    await cursor.execute(_encode(query), parameters)
    return await cursor.fetchall()


async def fetch_optional(
    tx: Transaction, kind: Callable[..., T], query: Query, parameters: Parameters = ()
) -> T | None:
    """The row of a query that has one at most."""
    cursor = tx.cursor(row_factory=kwargs_row(kind))
    await cursor.execute(_encode(query), parameters)
    return await cursor.fetchone()


async def fetch_one(
    tx: Transaction,
    kind: Callable[..., T],
    query: Query,
    parameters: Parameters = (),
    missing: Exception | None = None,
) -> T:
    """The row of a query that has one; else `missing` is raised."""
    found = await fetch_optional(tx, kind, query, parameters)
    if found is None:
        raise missing or AssertionError("the query has no row")
    return found


async def fetch_value(tx: Transaction, query: Query, parameters: Parameters = ()) -> Any:  # noqa: ANN401
    """The first column of the first row; None where there is no row."""
    cursor = tx.cursor(row_factory=scalar_row)
    await cursor.execute(_encode(query), parameters)
    return await cursor.fetchone()


async def fetch_values(tx: Transaction, query: Query, parameters: Parameters = ()) -> list[Any]:
    """The first column of all rows."""
    cursor = tx.cursor(row_factory=scalar_row)
    await cursor.execute(_encode(query), parameters)
    return await cursor.fetchall()


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which page of a list is wanted."""

    limit: int
    # What the last item before them is ordered by; None: from the list's beginning
    after: Any = None
    descending: bool = False  # from its end to its beginning


async def paginate(
    tx: Transaction,
    kind: Callable[..., T],
    page: PageQuery,
    query: str,
    parameters: Mapping[str, Any],
    *,
    by: str,
) -> list[T]:
    """A page of the rows of a query, which ends with its conditions (`WHERE true` if it has none).

    Args:
        tx: in the tenant's scope.
        kind: what a row becomes.
        page: which page.
        query: without order and limit.
        parameters: of the query, by name.
        by: the column that orders the rows, each of which has another value of it.
    """
    comparison, direction = ("<", "DESC") if page.descending else (">", "ASC")
    after = "" if page.after is None else f"AND {by} {comparison} %(after)s"
    return await fetch_all(
        tx,
        kind,
        f"{query} {after} ORDER BY {by} {direction} LIMIT %(limit)s",
        {**parameters, "after": page.after, "limit": page.limit},
    )


def _encode(query: Query) -> bytes | sql.Composed:
    return query.encode() if isinstance(query, str) else query
