"""The list of agents."""

from fastapi.responses import Response

from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep

router = PageRouter()


@router.get("/agents")
async def list_agents(visit: VisitDep, after: str = "") -> Response:
    page = await visit.api.agents.list(after=after or None, limit=30, order="desc")
    return visit.page("agents.html", section="agents", page=page)
