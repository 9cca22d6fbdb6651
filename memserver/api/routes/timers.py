"""Timers: what an agent is reminded of at its time, by an event."""

from datetime import timedelta
from uuid import UUID

from memserver.api.dependencies import AgentId, BeginDep, ById, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.agents import TimerIn
from memserver.errors import NotFound
from memserver.memory.timers import set_timer
from memserver.storage import agents, timers
from memserver.wire.agents import Timer
from memserver.wire.base import Page

router = Router(prefix="/agents/{agent}/timers", tags=["timers"])


@router.post("", status_code=201)
async def create_timer(
    agent_id: AgentId, new: TimerIn, services: ServicesDep, tenant: TenantDep
) -> Timer:
    """Set a timer. At its time the text is an event in the agent's inbox, once, also after a restart."""
    now = services.deps.clock()
    due = new.at or now + timedelta(seconds=new.in_seconds or 0)
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        return Timer.model_validate(
            await set_timer(tx, tenant, agent_id, text=new.text, due=due, now=now)
        )


@router.get("")
async def list_timers(agent_id: AgentId, begin: BeginDep, listing: ById) -> Page[Timer, UUID]:
    """List the timers that have not gone off yet."""
    async with begin() as tx:
        await agents.get(tx, agent_id)
        found = await timers.list_page(tx, agent_id, listing.query)
    return listing.page(Page[Timer, UUID], found, lambda timer: timer.id)


@router.delete("/{timer_id}", status_code=204)
async def delete_timer(agent_id: AgentId, timer_id: UUID, begin: BeginDep) -> None:
    """Delete a timer, which then doesn't go off."""
    async with begin() as tx:
        if await timers.find(tx, timer_id, agent_id) is None:
            raise NotFound(
                f"The agent has no timer {timer_id}.",
                hint="GET /v1/agents/{agent}/timers lists those that have not gone off yet.",
            )
        await timers.remove(tx, timer_id)
