"""API keys and tenants."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from memserver.client.models.base import Record

Scope = Literal["read", "write", "admin"]


class ApiKey(Record):
    """An API key, without its secret.

    Attributes:
        prefix: the beginning of its secret, to recognise it by.
        last_used_at: to the minute.
    """

    id: UUID
    tenant: str
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class CreatedKey(ApiKey):
    """A key just created; `key` is its secret, shown this once.

    It is None where the server had answered already and the answer was lost: then revoke this key and
    create another one.
    """

    key: str | None = Field(repr=False)


class Tenant(Record):
    """A tenant; `tenant` is its name."""

    tenant: str
    created_at: datetime
