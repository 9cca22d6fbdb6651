"""Bodies of requests for keys and tenants."""

from typing import Annotated

from pydantic import Field, StringConstraints

from memserver.api.schemas.agents import Change, Moment, Name, RequestBody
from memserver.storage.api_keys import TENANT_PATTERN
from memserver.wire.keys import Scope

TenantName = Annotated[str, StringConstraints(pattern=TENANT_PATTERN)]


class KeyIn(RequestBody):
    """A new API key."""

    name: Name = Field(description="What it is for; need not be unique.", examples=["chat app"])
    scopes: list[Scope] = Field(
        default=["read", "write"],
        min_length=1,
        max_length=3,
        description="read: GET; write: everything else; admin: keys and tenants, and all of these.",
    )
    expires_at: Moment | None = Field(default=None, description="Left out: never.", examples=[None])
    daily_tokens: int | None = Field(
        default=None,
        ge=1,
        le=2**53,
        description="Tokens that turns posted by it may use on a day, in UTC; left out: no limit.",
        examples=[None],
    )
    tenant: TenantName | None = Field(
        default=None, description="Left out: your own. Another one's only for the operator."
    )


class TenantIn(RequestBody):
    """A new tenant."""

    tenant: TenantName = Field(
        description="Its name, by which it is known for ever.", examples=["example"]
    )


class TenantPatch(Change):
    """A change of a tenant; what is left out stays."""

    nullable = frozenset({"retention_days"})

    retention_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="Messages and passages older than this are deleted; null: none are.",
        examples=[365],
    )
