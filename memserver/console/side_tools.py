"""An agent's tools with their rules, and its timers, beside a conversation."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from fastapi.responses import Response

from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep
from memserver.errors import InvalidInput

router = PageRouter()
RULES = {
    "approval": "A person has to approve each call before it runs",
    "first": "A turn's first call is this one, or another with this rule",
    "terminal": "The turn ends once it has succeeded",
    "required": "The turn doesn't end before it has succeeded",
}
UNITS = {"minutes": 60, "hours": 3600, "days": 86_400}


@router.get("/agents/{agent}/side/tools")
async def show_tools(visit: VisitDep, agent: UUID) -> Response:
    has = (await visit.api.tools.of_agent(agent, limit=100)).items
    names = {tool.name for tool in has}
    others = [
        tool for tool in (await visit.api.tools.list(limit=100)).items if tool.name not in names
    ]
    return visit.page("side_tools.html", agent_id=agent, tools=has, others=others, rules=RULES)


@router.post("/agents/{agent}/tools/{name}/attach")
async def attach_tool(visit: VisitDep, agent: UUID, name: str) -> Response:
    """Give the agent a tool, or one that it has other rules."""
    form = await visit.form()
    most = str(form.get("max_calls", "")).strip()
    if most and not most.isdecimal():
        raise InvalidInput(
            "Calls in a turn: this has to be a number.", hint="Leave it empty for no limit."
        )
    rules = {rule: form.get(rule) == "on" for rule in RULES}
    await visit.api.tools.attach(agent, name, **rules, max_calls=int(most) if most else None)
    return await show_tools(visit, agent)


@router.post("/agents/{agent}/tools/{name}/detach")
async def detach_tool(visit: VisitDep, agent: UUID, name: str) -> Response:
    await visit.form()
    await visit.api.tools.detach(agent, name)
    return await show_tools(visit, agent)


@router.get("/agents/{agent}/side/timers")
async def show_timers(visit: VisitDep, agent: UUID) -> Response:
    page = await visit.api.timers.list(agent, limit=50)
    return visit.page("side_timers.html", agent_id=agent, timers=page.items, units=UNITS)


@router.post("/agents/{agent}/timers")
async def set_timer(visit: VisitDep, agent: UUID) -> Response:
    form = await visit.form()
    try:
        amount = float(str(form.get("amount", "")))
        seconds = amount * UNITS[str(form.get("unit", "minutes"))]
        at = datetime.now(UTC) + timedelta(seconds=seconds)
    except (ValueError, KeyError, OverflowError) as error:
        raise InvalidInput("When: this has to be a number of minutes, hours or days.") from error
    await visit.api.timers.create(agent, str(form.get("text", "")).strip(), at=at)
    return await show_timers(visit, agent)


@router.post("/agents/{agent}/timers/{timer}/delete")
async def delete_timer(visit: VisitDep, agent: UUID, timer: UUID) -> Response:
    await visit.form()
    await visit.api.timers.delete(agent, timer)
    return await show_timers(visit, agent)
