"""What routes ask for: the services, and whose request it is."""

from typing import Annotated, cast

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from memserver.api.access import Caller
from memserver.errors import Conflict
from memserver.memory.text import clean
from memserver.wiring import Services


async def _services(request: Request) -> Services:
    services = cast("Services | None", getattr(request.app.state, "services", None))
    if services is None:
        raise Conflict("The server is still starting.", hint="Ask GET /v1/ready.")
    return services


async def _caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


async def _tenant(request: Request) -> str:
    return (await _caller(request)).tenant


ServicesDep = Annotated[Services, Depends(_services)]
CallerDep = Annotated[Caller, Depends(_caller)]
TenantDep = Annotated[str, Depends(_tenant)]
PathText = Annotated[str, AfterValidator(clean)]
"""A text in a path or a query, without what Postgres can't take."""
Limit = Annotated[int, Query(ge=1, le=100, description="Items on a page.")]
Before = Annotated[
    int | None, Query(description="The `next` of the page before.", ge=-(2**62), le=2**62)
]
PageNumber = Annotated[
    int, Query(description="From 1; a page that does not exist is empty.", ge=-(2**53), le=2**53)
]
