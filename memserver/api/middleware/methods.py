"""HEAD and OPTIONS, for all paths alike: what GET would say without its body, and what a path takes."""

from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memserver.api.paths import allowed_methods


class HeadAndOptions:
    """Needs no key for OPTIONS: what a path takes is in the OpenAPI document, which needs none either."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method")
        if method == "HEAD":
            await self._head(scope, receive, send)
        elif method == "OPTIONS" and (allowed := allowed_methods(scope)):
            await Response(status_code=204, headers={"Allow": allowed})(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ends a stream once its headers are there: what listens hears that nobody listens any more."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                await send(message)
            elif not started:
                started = True
                await send({"type": "http.response.body", "body": b""})
            elif message.get("more_body"):
                raise OSError

        async def receiving() -> Message:
            return {"type": "http.disconnect"} if started else await receive()

        with suppress(ClientDisconnect):
            await self._app({**scope, "method": "GET"}, receiving, sending)
