"""A request's id, its line in the log, and how long it takes."""

import logging
import re
from time import perf_counter
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memserver.telemetry import ids
from memserver.telemetry.logs import ACCESS
from memserver.telemetry.metrics import REQUEST

REQUEST_ID = "X-Request-Id"
_HEADER = REQUEST_ID.lower().encode()
_USABLE = re.compile(rb"[A-Za-z0-9._-]{1,100}")
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
logger = logging.getLogger(ACCESS)


class RequestLog:
    """Gives each request an id, the sender's own if it has one, which the answer repeats. Stands around all others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        if not _USABLE.fullmatch(request_id):
            request_id = uuid4().hex.encode()
        status, start = 0, perf_counter()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_HEADER, request_id)]
            await send(message)

        with ids.bound(request_id=request_id.decode()):
            try:
                await self._app(scope, receive, sending)
            finally:
                seconds = perf_counter() - start
                _measure(scope, status, seconds)
                if logger.isEnabledFor(logging.INFO):
                    _log(scope, status, seconds)


def _measure(scope: Scope, status: int, seconds: float) -> None:
    services = getattr(scope["app"].state, "services", None)
    if services is not None:
        route = getattr(scope.get("route"), "path_format", "")  # none: there is no such path
        if scope["path"].startswith("/v1/") and route:
            route = f"/v1{route}"  # it knows nothing of the router that has included it
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        labels = (method, route, str(status))
        services.deps.metrics.record(REQUEST, seconds, *labels)


def _log(scope: Scope, status: int, seconds: float) -> None:
    caller = scope.get("state", {}).get("caller")
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "duration_ms": round(1000 * seconds, 1),
    }
    if caller is not None:
        fields |= {"tenant": caller.tenant, "key": caller.key_id and str(caller.key_id)}
    # A path is a client's: repr keeps it on its line.
    logger.info(
        "%s %r %d %.1f ms",
        *(fields["method"], fields["path"], status, fields["duration_ms"]),
        extra=fields,
    )
