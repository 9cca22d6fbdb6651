"""The requests for API keys and tenants, each once, for both clients."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from memserver.client.models import ApiKey, CreatedKey, Page, Scope, Tenant
from memserver.client.requests import Id, Order, PageRequest, Request, given, new_key, nothing


def create_key(
    name: str,
    *,
    scopes: Sequence[Scope] | None = None,
    expires_at: datetime | None = None,
    tenant: str | None = None,
) -> Request[CreatedKey]:
    """Create an API key. Its secret is in this answer only.

    Args:
        name: what it is for; need not be unique.
        scopes: left out: read and write.
        expires_at: with a zone; left out: never.
        tenant: left out: your own. Another one's only for the operator.
    """
    body = given(
        name=name,
        scopes=None if scopes is None else list(scopes),
        expires_at=expires_at,
        tenant=tenant,
    )
    return Request("POST", "/keys", CreatedKey.model_validate, body=body, key=new_key())


def list_keys(
    *,
    tenant: str | None = None,
    after: Id | None = None,
    limit: int = 50,
    order: Order | None = None,
) -> PageRequest[ApiKey, UUID]:
    """List the API keys, oldest first, revoked and expired ones too."""
    query = {"tenant": tenant, "after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/keys", Page[ApiKey, UUID].model_validate, query=query)


def get_key(key: Id, *, tenant: str | None = None) -> Request[ApiKey]:
    """Get one API key."""
    return Request(
        "GET", "/keys/{key_id}", ApiKey.model_validate, {"key_id": key}, {"tenant": tenant}
    )


def revoke_key(key: Id, *, tenant: str | None = None) -> Request[None]:
    """Revoke an API key: from now on it opens nothing."""
    return Request("DELETE", "/keys/{key_id}", nothing, {"key_id": key}, {"tenant": tenant})


def create_tenant(tenant: str) -> Request[Tenant]:
    """Create a tenant; only the operator can."""
    body = {"tenant": tenant}
    return Request("POST", "/tenants", Tenant.model_validate, body=body, key=new_key())


def list_tenants(
    *, after: str | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Tenant, str]:
    """List the tenants, by name: all for the operator, for others their own."""
    query = {"after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/tenants", Page[Tenant, str].model_validate, query=query)


def get_tenant(tenant: str) -> Request[Tenant]:
    """Get one tenant."""
    return Request("GET", "/tenants/{tenant}", Tenant.model_validate, {"tenant": tenant})
