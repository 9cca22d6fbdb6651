"""API keys: created, listed and revoked by an admin of their tenant, or by the server's operator."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request

from memserver.api.dependencies import ById, CallerDep, ServicesDep
from memserver.api.json_body import Router
from memserver.api.middleware.access import Caller
from memserver.api.middleware.idempotency import keep_instead
from memserver.api.schemas.keys import KeyIn, TenantName
from memserver.errors import InvalidInput
from memserver.storage import api_keys
from memserver.storage.api_keys import NewKey, no_tenant
from memserver.wire.base import Page
from memserver.wire.keys import ApiKey, CreatedKey

router = Router(prefix="/keys", tags=["keys and tenants"])


def _whose(caller: Caller, tenant: str | None) -> str:
    """The tenant whose keys are meant. Raises NotFound: another one's is there for the operator alone."""
    if tenant is None or tenant == caller.tenant or caller.operates:
        return tenant or caller.tenant
    raise no_tenant(tenant)


async def _asked_tenant(
    caller: CallerDep,
    tenant: Annotated[
        TenantName | None, Query(description="Another tenant's keys: for the operator.")
    ] = None,
) -> str:
    return _whose(caller, tenant)


KeysOf = Annotated[str, Depends(_asked_tenant)]


@router.post("", status_code=201)
async def create_key(
    new: KeyIn, request: Request, services: ServicesDep, caller: CallerDep
) -> CreatedKey:
    """Create a key. The answer alone has its secret; what is stored is a hash."""
    now: datetime = services.deps.clock()
    if new.expires_at is not None and new.expires_at <= now:
        raise InvalidInput("expires_at: it is over already.", hint="Name a time to come.")
    tenant = _whose(caller, new.tenant)
    async with services.database.tenant(tenant) as tx:
        made, secret = await api_keys.create(
            tx, tenant, NewKey(new.name, new.scopes, new.expires_at, new.daily_tokens)
        )
    services.keys.created()
    created = CreatedKey(**dict(made), key=secret)
    keep_instead(request, created.model_copy(update={"key": None}).model_dump_json().encode())
    return created


@router.get("")
async def list_keys(services: ServicesDep, tenant: KeysOf, listing: ById) -> Page[ApiKey, UUID]:
    """List keys, revoked and expired ones too."""
    async with services.database.tenant(tenant) as tx:
        await api_keys.get_tenant(tx, tenant)
        found = await api_keys.list_page(tx, listing.query)
    return listing.page(Page[ApiKey, UUID], found, lambda key: key.id)


@router.get("/{key_id}")
async def get_key(key_id: UUID, services: ServicesDep, tenant: KeysOf) -> ApiKey:
    """Get one key."""
    async with services.database.tenant(tenant) as tx:
        return await api_keys.get(tx, key_id)


@router.delete("/{key_id}", status_code=204)
async def revoke_key(key_id: UUID, services: ServicesDep, tenant: KeysOf) -> None:
    """Revoke a key for good; it stays in the list. Other processes notice within seconds."""
    async with services.database.tenant(tenant) as tx:
        await api_keys.revoke(tx, key_id)
    services.keys.revoked(key_id)
