"""API keys and tenants."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from memserver.wire.base import Record

Scope = Literal["read", "write", "admin"]


class ApiKey(Record):
    """An API key, without its secret."""

    id: UUID
    tenant: str = Field(examples=["acme"])
    name: str = Field(examples=["chat app"])
    prefix: str = Field(
        description="The beginning of its secret, to recognise it by.", examples=["msk_3fZk9"]
    )
    scopes: list[Scope] = Field(examples=[["read", "write"]])
    created_at: datetime
    expires_at: datetime | None = Field(examples=[None])
    revoked_at: datetime | None = Field(examples=[None])
    last_used_at: datetime | None = Field(description="To the minute.", examples=[None])
    daily_tokens: int | None = Field(
        default=None,
        description="Tokens that turns posted by it may use on a day, in UTC.",
        examples=[None],
    )


class CreatedKey(ApiKey):
    """A key just created, with its secret."""

    key: str | None = Field(
        repr=False,
        description="The secret, shown this once. Null where the request is repeated with its "
        "Idempotency-Key: the secret is stored nowhere. Revoke the key then, and create another one.",
        examples=["msk_3fZk9…"],
    )


class Tenant(Record):
    """A tenant; `tenant` is its name."""

    tenant: str = Field(examples=["acme"])
    created_at: datetime
    retention_days: int | None = Field(
        default=None,
        description="Messages and passages older than this are deleted; null: none are.",
        examples=[None],
    )
