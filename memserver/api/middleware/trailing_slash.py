"""A path means the same with a slash at its end as without: a redirect would lose what a proxy knows, as https."""

from starlette.types import ASGIApp, Receive, Scope, Send


class TrailingSlash:
    """Takes a path's last slash away."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on."""
        path = scope.get("path", "")
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await self._app(scope, receive, send)
