"""Timers: what an agent is reminded of at its time, by an event."""

from datetime import timedelta
from uuid import UUID

from memserver.api.dependencies import AgentId, ById, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.timers import TimerIn, TimerOut, TimerPage
from memserver.errors import NotFound
from memserver.memory.timers import set_timer
from memserver.storage import agents, timers

router = Router(prefix="/agents/{agent}/timers", tags=["timers"])


@router.post("", status_code=201)
async def create_timer(
    agent_id: AgentId, new: TimerIn, services: ServicesDep, tenant: TenantDep
) -> TimerOut:
    """Set a timer. At its time the text is an event in the agent's inbox, once, also after a restart."""
    now = services.deps.clock()
    due = new.at or now + timedelta(seconds=new.in_seconds or 0)
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        return TimerOut.read(await set_timer(tx, tenant, agent_id, text=new.text, due=due, now=now))


@router.get("")
async def list_timers(
    agent_id: AgentId, services: ServicesDep, tenant: TenantDep, listing: ById
) -> TimerPage:
    """List the timers that have not gone off yet."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        found = await timers.list_page(tx, agent_id, listing.query)
    items, more = listing.split(found, lambda timer: timer.id)
    return TimerPage(items=[TimerOut.read(timer) for timer in items], next=more)


@router.delete("/{timer_id}", status_code=204)
async def delete_timer(
    agent_id: AgentId, timer_id: UUID, services: ServicesDep, tenant: TenantDep
) -> None:
    """Delete a timer, which then doesn't go off."""
    async with services.database.tenant(tenant) as tx:
        if await timers.find(tx, timer_id, agent_id) is None:
            raise NotFound(
                f"The agent has no timer {timer_id}.",
                hint="GET /v1/agents/{agent}/timers lists those that have not gone off yet.",
            )
        await timers.remove(tx, timer_id)
