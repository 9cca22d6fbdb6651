"""Requests as values: what is sent, and how the answer is read. Knows neither sockets nor waiting."""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote
from uuid import UUID

from pydantic import BaseModel

from memserver.client.models import Page

PIECE = 1_000_000
"""Bytes of a file that are in memory at once."""

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
C = TypeVar("C", bound=UUID | int | str)

JsonObject = Mapping[str, Any]
Id = UUID | str
"""Of an agent, a collection or the like."""
Order = Literal["asc", "desc"]
"""Of a list: as its items were made, or by name; or the other way round."""
Date = date | datetime | str
"""A date, a datetime (without a zone it is UTC), `today`, `yesterday` or `now`."""


class Paged(TypedDict, Generic[C], total=False):
    """Which page of a list: `limit` items (50 where it is left out), after the `next` of the page before."""

    after: C | None
    limit: int
    order: Order | None


class Unset(Enum):
    """Marks what a change leaves out, where None has a meaning of its own."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One request.

    Attributes:
        method: of HTTP.
        path: below /v1, with the names of `ids` in braces.
        parse: reads the body of the answer.
        ids: what stands in the path.
        query: its parameters; None is left out.
        body: JSON.
        file: sent instead of JSON; one that is named by its path is read piece by piece, while it is sent.
        target: where the answer is written, piece by piece, instead of being read.
        raw: whether `parse` takes the answer's bytes, not its JSON.
        key: the idempotency key: what is sent again with it is done once. Every POST has one.
        answers: statuses other than 2xx that are an answer and no error.
        after: of a stream: the id of the event after which it begins.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    parse: Callable[[Any], T]
    ids: Mapping[str, Id | int] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    file: bytes | Path | None = None
    target: Path | None = None
    raw: bool = False
    key: str | None = None
    answers: frozenset[int] = frozenset()
    after: int | None = None

    @property
    def url(self) -> str:
        """The path with its ids."""
        named = {name: quote(str(value), safe="") for name, value in self.ids.items()}
        return "/v1" + self.path.format_map(named)

    @property
    def parameters(self) -> list[tuple[str, str | int | float | bool | None]]:
        """The query as it is sent; a list repeats its name."""
        return [
            (name, _as_text(each))
            for name, value in self.query.items()
            if value is not None
            for each in (value if isinstance(value, list) else [value])
        ]

    @property
    def content(self) -> bytes | None:
        """The body as it is sent, unless it is read from a path."""
        if self.body is None:
            return None if isinstance(self.file, Path) else self.file
        return json.dumps(self.body, default=_as_json, ensure_ascii=False).encode(
            errors="surrogatepass"
        )

    @property
    def headers(self) -> dict[str, str]:
        """Those of this request alone."""
        found = {}
        if self.body is not None or self.file is not None:
            kind = "json" if self.file is None else "octet-stream"
            found["Content-Type"] = f"application/{kind}"
        if isinstance(self.file, Path):
            found["Content-Length"] = str(self.file.stat().st_size)
        return found if self.key is None else {**found, "Idempotency-Key": self.key}

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again though the first one may have been carried out."""
        return self.method != "POST" or self.key is not None


def get(
    path: str, shape: type[M], query: JsonObject | None = None, /, **ids: Id | int
) -> Request[M]:
    """A request that reads something."""
    return Request("GET", path, shape.model_validate, ids, query or {})


def post(
    path: str,
    shape: type[M],
    body: JsonObject | None = None,
    /,
    *,
    key: str | None = None,
    **ids: Id | int,
) -> Request[M]:
    """A request that is done once for each idempotency key; a fresh one is made where none is given."""
    return Request("POST", path, shape.model_validate, ids, body=body, key=key or new_key())


def put(path: str, shape: type[M], body: JsonObject, /, **ids: Id | int) -> Request[M]:
    """A request that replaces something."""
    return Request("PUT", path, shape.model_validate, ids, body=body)


def patch(path: str, shape: type[M], body: JsonObject, /, **ids: Id | int) -> Request[M]:
    """A request that changes something."""
    return Request("PATCH", path, shape.model_validate, ids, body=body)


def delete(path: str, /, **ids: Id | int) -> Request[None]:
    """A request that removes something."""
    return Request("DELETE", path, nothing, ids)


def next_page(request: Request[Page[T, C]], page: Page[T, C]) -> Request[Page[T, C]] | None:
    """The request for the page after this one, or None if it was the last."""
    if page.next is None:
        return None
    return replace(request, query={**request.query, "after": page.next})


def new_key() -> str:
    """A fresh idempotency key."""
    return uuid.uuid4().hex


def given(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Those values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def changed(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Those values that are not UNSET."""
    return {name: value for name, value in values.items() if value is not UNSET}


def nothing(_: object) -> None:
    """Read an answer that has no body."""


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def _as_json(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} can't be sent as JSON.")
