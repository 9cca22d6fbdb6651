"""Tenants: created by the server's operator; each admin sees its own."""

from typing import Annotated

from fastapi import Path

from memserver.api.dependencies import ByTenant, CallerDep, ServicesDep
from memserver.api.json_body import Router
from memserver.api.schemas.keys import TenantIn, TenantName, TenantPatch
from memserver.errors import Forbidden
from memserver.storage import api_keys
from memserver.storage.api_keys import DEFAULT_TENANT, no_tenant
from memserver.wire.base import Page
from memserver.wire.keys import Tenant

router = Router(prefix="/tenants", tags=["keys and tenants"])


@router.post("", status_code=201)
async def create_tenant(new: TenantIn, services: ServicesDep, caller: CallerDep) -> Tenant:
    """Create a tenant. Then give it a key, by `tenant` in `POST /v1/keys`."""
    if not caller.operates:
        raise Forbidden(
            "Only the server's operator creates tenants.",
            hint=f"That is an admin key of the tenant {DEFAULT_TENANT!r}.",
        )
    async with services.database.tenant(new.tenant) as tx:
        return await api_keys.create_tenant(tx, new.tenant)


@router.get("")
async def list_tenants(
    services: ServicesDep, caller: CallerDep, listing: ByTenant
) -> Page[Tenant, str]:
    """List tenants by their names: all for the operator, for others their own."""
    async with services.database.tenant(caller.tenant) as tx:
        if caller.operates:
            found = await api_keys.list_tenants(tx, listing.query)
        else:
            found = [await api_keys.get_tenant(tx, caller.tenant)]
    return listing.page(Page[Tenant, str], found, lambda tenant: tenant.tenant)


@router.get("/{tenant}")
async def get_tenant(
    tenant: Annotated[TenantName, Path()], services: ServicesDep, caller: CallerDep
) -> Tenant:
    """Get one tenant."""
    if tenant != caller.tenant and not caller.operates:
        raise no_tenant(tenant)
    async with services.database.tenant(tenant) as tx:
        return await api_keys.get_tenant(tx, tenant)


@router.patch("/{tenant}")
async def update_tenant(
    tenant: Annotated[TenantName, Path()],
    change: TenantPatch,
    services: ServicesDep,
    caller: CallerDep,
) -> Tenant:
    """Change for how long a tenant keeps messages and passages. Within an hour what is older is deleted, for good."""
    if tenant != caller.tenant and not caller.operates:
        raise no_tenant(tenant)
    async with services.database.tenant(tenant) as tx:
        if "retention_days" in change.values():
            await api_keys.set_retention(tx, tenant, change.retention_days)
        return await api_keys.get_tenant(tx, tenant)
