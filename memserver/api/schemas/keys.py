"""Keys and tenants as pydantic models."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints

from memserver.api.schemas.agents import Moment, Name, Request
from memserver.storage.api_keys import TENANT_PATTERN, ApiKey, Scope, Tenant

TenantName = Annotated[str, StringConstraints(pattern=TENANT_PATTERN)]


class KeyIn(Request):
    """A new API key."""

    name: Name = Field(description="What it is for; need not be unique.", examples=["chat app"])
    scopes: list[Scope] = Field(
        default=["read", "write"],
        min_length=1,
        max_length=3,
        description="read: GET; write: everything else; admin: keys and tenants, and all of these.",
    )
    expires_at: Moment | None = Field(default=None, description="Left out: never.", examples=[None])
    tenant: TenantName | None = Field(
        default=None, description="Left out: your own. Another one's only for the operator."
    )


class KeyOut(BaseModel):
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

    @classmethod
    def read(cls, key: ApiKey) -> Self:
        """From a stored key."""
        return cls(**_fields(key))


class KeyCreated(KeyOut):
    """A key just created, with its secret."""

    key: str | None = Field(
        repr=False,
        description="The secret, shown this once. Null where the request is repeated with its "
        "Idempotency-Key: the secret is stored nowhere. Revoke the key then, and create another one.",
        examples=["msk_3fZk9…"],
    )

    @classmethod
    def of(cls, key: ApiKey, secret: str | None) -> Self:
        """From a stored key and its secret."""
        return cls(**_fields(key), key=secret)


class KeyPage(BaseModel):
    """A page of keys; `next` is the cursor of the following page, or null."""

    items: list[KeyOut]
    next: UUID | None


class TenantIn(Request):
    """A new tenant."""

    tenant: TenantName = Field(
        description="Its name, by which it is known for ever.", examples=["example"]
    )


class TenantOut(BaseModel):
    """A tenant."""

    tenant: str = Field(examples=["acme"])
    created_at: datetime

    @classmethod
    def read(cls, tenant: Tenant) -> Self:
        """From a stored tenant."""
        return cls(tenant=tenant.tenant, created_at=tenant.created_at)


class TenantPage(BaseModel):
    """A page of tenants; `next` is the cursor of the following page, or null."""

    items: list[TenantOut]
    next: str | None = Field(examples=[None])


def _fields(key: ApiKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in KeyOut.model_fields}
