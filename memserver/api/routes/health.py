"""Liveness and readiness."""

from contextlib import suppress
from typing import cast

from fastapi import Request, Response

import memserver
from memserver.api.json_body import Router
from memserver.api.middleware.access import Caller
from memserver.errors import MemserverError
from memserver.wire.base import Component, Health, Readiness
from memserver.wiring.services import Services

router = Router(tags=["health"])
HIDDEN = "It is not ready. Ask with an operator's key for the reason, or look in the server's log."


@router.get("/health")
async def get_health() -> Health:
    """Whether the server answers. It does while the model still loads."""
    return Health(status="ok", version=memserver.__version__)


@router.get("/ready", responses={503: {"model": Readiness, "description": "Not yet, or not now."}})
async def get_readiness(request: Request, response: Response) -> Readiness:
    """Whether turns can be answered now, and if not, what is missing; why, only the operator's key shows."""
    services = cast("Services | None", getattr(request.app.state, "services", None))
    if services is None:
        response.status_code = 503
        waits_for = getattr(request.app.state, "waits_for", "The server is still starting.")
        return Readiness(
            ready=False, components=[Component(name="database", ready=False, detail=waits_for)]
        )
    found = [Component.model_validate(check) for check in await services.readiness()]
    ready = all(component.ready for component in found)
    if not ready:
        response.status_code = 503
        if not await _is_operator(request):
            hidden = {"detail": HIDDEN}
            found = [each if each.ready else each.model_copy(update=hidden) for each in found]
    return Readiness(ready=ready, components=found)


async def _is_operator(request: Request) -> bool:
    """Whether an operator asks; nobody needs a key here, so that it is looked for only now."""
    with suppress(MemserverError):
        caller: Caller = await request.state.find_caller()
        return caller.operates
    return False
