"""Liveness and readiness."""

from fastapi import Response

import memserver
from memserver.api.dependencies import ServicesDep
from memserver.api.json_body import Router
from memserver.api.schemas.agents import Component, Health, Readiness

router = Router(tags=["health"])


@router.get("/health")
async def get_health() -> Health:
    """Whether the server answers. It does while the model still loads."""
    return Health(status="ok", version=memserver.__version__)


@router.get("/ready", responses={503: {"model": Readiness, "description": "Not yet, or not now."}})
async def get_readiness(services: ServicesDep, response: Response) -> Readiness:
    """Whether turns can be answered now, and if not, what is missing."""
    found = [
        Component(name=check.name, ready=check.ready, detail=check.detail)
        for check in await services.readiness()
    ]
    ready = all(component.ready for component in found)
    if not ready:
        response.status_code = 503
    return Readiness(ready=ready, components=found)
