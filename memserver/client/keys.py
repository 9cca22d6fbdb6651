"""API keys and tenants."""

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import ApiKey, CreatedKey, Page, Scope, Tenant, TenantUsage
from memserver.client.requests import Id, Paged, Request, get, given, nothing, patch, post

_KEY = "/keys/{key_id}"


class Keys(Resource[TransportT]):
    """API keys."""

    @method
    def create(
        self,
        name: str,
        *,
        scopes: Sequence[Scope] | None = None,
        expires_at: datetime | None = None,
        daily_tokens: int | None = None,
        tenant: str | None = None,
    ) -> Request[CreatedKey]:
        """Create an API key. Its secret is in this answer only.

        Args:
            name: what it is for; need not be unique.
            scopes: left out: read and write.
            expires_at: with a zone; left out: never.
            daily_tokens: that turns posted by it may use on a day, in UTC; left out: no limit.
            tenant: left out: your own. Another one's only for the operator.
        """
        body = given(
            name=name,
            scopes=None if scopes is None else [*scopes],
            expires_at=expires_at,
            daily_tokens=daily_tokens,
            tenant=tenant,
        )
        return post("/keys", CreatedKey, body)

    @method
    def list(
        self, *, tenant: str | None = None, **page: Unpack[Paged[Id]]
    ) -> Request[Page[ApiKey, UUID]]:
        """List the API keys, oldest first, revoked and expired ones too."""
        query = {"tenant": tenant, **page}
        return get("/keys", Page[ApiKey, UUID], query)

    all = items(list.build)

    @method
    def get(self, key: Id, *, tenant: str | None = None) -> Request[ApiKey]:
        """Get one API key."""
        return get(_KEY, ApiKey, {"tenant": tenant}, key_id=key)

    @method
    def revoke(self, key: Id, *, tenant: str | None = None) -> Request[None]:
        """Revoke an API key: from now on it opens nothing."""
        return Request("DELETE", _KEY, nothing, {"key_id": key}, {"tenant": tenant})


class Tenants(Resource[TransportT]):
    """Tenants."""

    @method
    def create(self, tenant: str) -> Request[Tenant]:
        """Create a tenant; only the operator can."""
        return post("/tenants", Tenant, {"tenant": tenant})

    @method
    def list(self, **page: Unpack[Paged[str]]) -> Request[Page[Tenant, str]]:
        """List the tenants, by name: all for the operator, for others their own."""
        return get("/tenants", Page[Tenant, str], page)

    all = items(list.build)

    @method
    def get(self, tenant: str) -> Request[Tenant]:
        """Get one tenant."""
        return get("/tenants/{tenant}", Tenant, tenant=tenant)

    @method
    def update(self, tenant: str, *, retention_days: int | None) -> Request[Tenant]:
        """Change for how many days a tenant keeps messages and passages; None: until they are deleted."""
        body = {"retention_days": retention_days}
        return patch("/tenants/{tenant}", Tenant, body, tenant=tenant)

    @method
    def usage(
        self, tenant: str | None = None, *, agent: Id | None = None, days: int = 30
    ) -> Request[TenantUsage]:
        """Get the tokens that turns used, day by day.

        Args:
            tenant: left out: your own. Another one's only for the operator.
            agent: its turns alone.
            days: up to today, in UTC.
        """
        return get("/usage", TenantUsage, {"tenant": tenant, "agent": agent, "days": days})
