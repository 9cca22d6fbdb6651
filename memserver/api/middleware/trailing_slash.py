"""A path means the same with a slash at its end as without: a redirect would lose what a proxy knows, as https."""

from starlette.types import ASGIApp, Receive, Scope, Send


class TrailingSlash:
    """Takes slashes at a path's end away, but not one that was written as `%2F`: it belongs to a name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if len(path) > 1 and path.endswith("/"):
            written = scope.get("raw_path") or path.encode()
            kept = path[: len(path) - (len(written) - len(written.rstrip(b"/")))]
            scope = {**scope, "path": kept or "/"}
        await self._app(scope, receive, send)
