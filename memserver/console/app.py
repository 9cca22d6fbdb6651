"""All pages of the console as one router, and the files that they load."""

from fastapi import APIRouter, FastAPI
from fastapi.responses import Response

from memserver.console import (
    agents,
    conversation,
    endpoints,
    keys,
    lens,
    operations,
    runs,
    sections,
    side_panel,
    side_tools,
    sign_in,
    stores,
)
from memserver.console.rendering import STATIC, static_file
from memserver.console.routing import PageRouter, error_page
from memserver.console.visit import VisitDep
from memserver.errors import NotFound

MODULES = (
    sign_in,
    lens,
    agents,
    conversation,
    side_panel,
    sections,
    stores,
    side_tools,
    endpoints,
    keys,
    operations,
    runs,
)
own = PageRouter()


@own.get("/static/{name:path}")
async def send_static(name: str) -> Response:
    found = static_file(name)
    if found is None:
        return Response(status_code=404)
    kept = "public, max-age=86400, immutable"
    return Response(found, media_type=STATIC[name], headers={"Cache-Control": kept})


@own.get("")
async def show_first(visit: VisitDep) -> Response:
    return visit.go("agents")


last = PageRouter()


@last.get("/{path:path}")
async def show_nothing(visit: VisitDep) -> Response:
    return error_page(
        visit,
        NotFound("There is no such page.", hint="The list of agents is a good place to begin."),
    )


def install(app: FastAPI) -> None:
    """Add the console's pages to the application, below /console."""
    everything = APIRouter()
    for router in (own, *(module.router for module in MODULES), last):
        everything.include_router(router)
    app.include_router(everything)
