"""What every answer says to a browser: to guess no types, to load nothing, to be in no other page's frame.

An answer that says otherwise itself is left as it is: the pages name what they load.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class SecurityHeaders:
    """Adds them. Stands around all that may answer, errors too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def completing(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message["headers"])
                own = {name for name, _ in given}
                given += [each for each in SECURITY_HEADERS.items() if each[0] not in own]
                message["headers"] = given
            await send(message)

        await self._app(scope, receive, completing)
