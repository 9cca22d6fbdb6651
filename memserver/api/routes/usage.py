"""Tokens that a tenant's turns have used."""

from typing import Annotated

from fastapi import Query

from memserver.api.dependencies import AgentFilter, CallerDep, ServicesDep
from memserver.api.json_body import Router
from memserver.api.schemas.keys import TenantName
from memserver.storage import agents, api_keys, usage
from memserver.storage.api_keys import no_tenant
from memserver.wire.usage import TenantUsage

router = Router(prefix="/usage", tags=["keys and tenants"])


@router.get("")
async def get_usage(
    services: ServicesDep,
    caller: CallerDep,
    agent: AgentFilter,
    days: Annotated[int, Query(ge=1, le=366, description="Up to today, in UTC.")] = 30,
    tenant: Annotated[
        TenantName | None, Query(description="Another tenant's usage: for the operator.")
    ] = None,
) -> TenantUsage:
    """Get the tokens that turns used, day by day. What belonged to a deleted agent is gone with it."""
    whose = tenant or caller.tenant
    if whose != caller.tenant and not caller.operates:
        raise no_tenant(whose)
    async with services.database.tenant(whose) as tx:
        await api_keys.get_tenant(tx, whose)
        if agent is not None:
            await agents.get(tx, agent)
        return TenantUsage(tenant=whose, days=await usage.by_day(tx, days, agent))
