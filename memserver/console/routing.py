"""Routes of pages: what a browser is answered when something fails, and where a write may come from."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from memserver.console.safety import check_origin
from memserver.console.visit import PREFIX, Visit
from memserver.errors import (
    Conflict,
    Forbidden,
    InvalidApiKey,
    InvalidInput,
    MemserverError,
    MissingApiKey,
    NotFound,
    ServerStarting,
)

STATUS = {NotFound: 404, Forbidden: 403, Conflict: 409, ServerStarting: 503}


class PageRouter(APIRouter):
    """A router of pages; their paths are below /console."""

    def __init__(self) -> None:
        super().__init__(prefix=PREFIX, include_in_schema=False, route_class=_PageRoute)


class _PageRoute(APIRoute):
    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                if request.method != "GET":
                    check_origin(request)
                return await handle(request)
            except MemserverError as error:
                return error_page(Visit(request), error)
            except RequestValidationError as error:
                problem = error.errors()[0]
                message = f"{problem['loc'][-1]}: {problem['msg']}"[:500]
                return error_page(Visit(request), InvalidInput(message))
            except HTTPException as error:
                return error_page(Visit(request), InvalidInput(str(error.detail)))
            finally:
                await request.close()  # files of a form

        return shown


def error_page(visit: Visit, error: MemserverError) -> Response:
    """What went wrong and what to do; without a key, where to enter one."""
    if isinstance(error, MissingApiKey | InvalidApiKey):
        wanted = visit.request.headers.get("hx-current-url") if visit.by_htmx else None
        path = wanted or visit.request.url.path
        after = path.partition(PREFIX)[2] if visit.request.method == "GET" else ""
        why = "" if isinstance(error, MissingApiKey) else error.message
        return visit.go("sign-in", after=after, why=why)
    status = next((each for kind, each in STATUS.items() if isinstance(error, kind)), 422)
    template = "notice.html" if visit.by_htmx else "error.html"
    waiting = isinstance(error, ServerStarting)
    return visit.page(template, status, error=error, waiting=waiting)
