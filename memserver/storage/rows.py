"""Rows read as values: one, all, or a page of a list; and what is alike for many tables. A value is made of a row's columns by their names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar
from uuid import UUID

from psycopg import sql
from psycopg.rows import kwargs_row, scalar_row
from psycopg.types.json import Json

from memserver.storage.database import Transaction
from memserver.storage.ids import new_id

T = TypeVar("T")
Query = str | sql.Composed
Parameters = Sequence[Any] | Mapping[str, Any]


def columns_of(kind: type, prefix: str = "") -> str:
    """The columns that a dataclass has fields of."""
    return ", ".join(f"{prefix}{field.name}" for field in fields(kind))


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
    cursor = tx.cursor(row_factory=scalar_row)
    await cursor.execute(_encode(query), parameters)
    return await cursor.fetchall()


@dataclass(frozen=True, slots=True)
class PageQuery:
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
    """A page of the rows of a query, which ends with its conditions (`WHERE true` if it has none), without order and limit.

    A row becomes a `kind`; the column `by` orders them, and has another value in each.
    """
    comparison, direction = ("<", "DESC") if page.descending else (">", "ASC")
    after = "" if page.after is None else f"AND {by} {comparison} %(after)s"
    return await fetch_all(
        tx,
        kind,
        f"{query} {after} ORDER BY {by} {direction} LIMIT %(limit)s",
        {**parameters, "after": page.after, "limit": page.limit},
    )


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """What is alike for tables whose rows are things of one kind."""

    kind: Callable[..., T]
    name: str
    columns: str
    missing: Callable[[Any], Exception]
    key: str = "id"
    listed: str = "true"  # the condition of rows that lists and names show
    changed: str = "updated_at"  # the column with the time of the last change

    async def get(self, tx: Transaction, key: Any) -> T:  # noqa: ANN401 - an id or a name
        query = f"SELECT {self.columns} FROM {self.name} WHERE {self.key} = %s"
        return await fetch_one(tx, self.kind, query, [key], self.missing(key))

    async def lock(self, tx: Transaction, key: UUID) -> T:
        """Fetch one for a write; others' writes wait until the transaction ends."""
        query = f"SELECT {self.columns} FROM {self.name} WHERE {self.key} = %s FOR NO KEY UPDATE"
        return await fetch_one(tx, self.kind, query, [key], self.missing(key))

    async def id_of(self, tx: Transaction, name: str) -> UUID:
        query = f"SELECT id FROM {self.name} WHERE name = %s AND {self.listed}"
        found: UUID | None = await fetch_value(tx, query, [name])
        if found is None:
            raise self.missing(name)
        return found

    async def list_page(
        self, tx: Transaction, page: PageQuery, *, name: str | None = None
    ) -> list[T]:
        """A page in the order of creation (ids sort by time), or of the one of this name."""
        query = f"""SELECT {self.columns} FROM {self.name}
                    WHERE {self.listed} AND (%(name)s::text IS NULL OR name = %(name)s)"""
        return await paginate(tx, self.kind, page, query, {"name": name}, by="id")

    async def insert(self, tx: Transaction, tenant: str, given: Mapping[str, Any]) -> T:
        """A new row with an id of its own; columns that aren't named have their defaults."""
        values = {"id": new_id(), "tenant": tenant, **_with_json(given)}
        places = ", ".join(f"%({name})s" for name in values)
        query = f"""INSERT INTO {self.name} ({", ".join(values)}) VALUES ({places})
                    RETURNING {self.columns}"""
        return await fetch_one(tx, self.kind, query, values)

    async def update(self, tx: Transaction, key: UUID | str, changes: Mapping[str, Any]) -> T:
        """Set the columns that are named; absent ones stay."""
        values = _with_json(changes)
        assignments = "".join(f"{name} = %({name})s, " for name in values)
        query = f"""UPDATE {self.name} SET {assignments} {self.changed} = now()
                    WHERE {self.key} = %(key)s RETURNING {self.columns}"""
        return await fetch_one(tx, self.kind, query, {**values, "key": key}, self.missing(key))

    async def delete(self, tx: Transaction, key: UUID | str) -> None:
        cursor = await tx.execute(f"DELETE FROM {self.name} WHERE {self.key} = %s".encode(), [key])
        if cursor.rowcount == 0:
            raise self.missing(key)


def _with_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: Json(value) if isinstance(value, dict) else value for name, value in values.items()
    }


def _encode(query: Query) -> bytes | sql.Composed:
    return query.encode() if isinstance(query, str) else query
