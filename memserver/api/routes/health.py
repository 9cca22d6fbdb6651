"""Liveness and readiness."""

from typing import cast

from fastapi import Request, Response

import memserver
from memserver.api.json_body import Router
from memserver.api.schemas.agents import Component, Health, Readiness
from memserver.wiring.services import Services

router = Router(tags=["health"])


@router.get("/health")
async def get_health() -> Health:
    """Whether the server answers. It does while the model still loads."""
    return Health(status="ok", version=memserver.__version__)


@router.get("/ready", responses={503: {"model": Readiness, "description": "Not yet, or not now."}})
async def get_readiness(request: Request, response: Response) -> Readiness:
    """Whether turns can be answered now, and if not, what is missing."""
    services = cast("Services | None", getattr(request.app.state, "services", None))
    if services is None:
        response.status_code = 503
        waits_for = getattr(request.app.state, "waits_for", "The server is still starting.")
        return Readiness(
            ready=False, components=[Component(name="database", ready=False, detail=waits_for)]
        )
    found = [
        Component(name=check.name, ready=check.ready, detail=check.detail)
        for check in await services.readiness()
    ]
    ready = all(component.ready for component in found)
    if not ready:
        response.status_code = 503
    return Readiness(ready=ready, components=found)
