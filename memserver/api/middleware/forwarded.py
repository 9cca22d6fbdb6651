"""What a reverse proxy says of a request: who sent it, by which scheme and name, and below which path.

Anybody can send such headers, so that they count from the proxies of the settings alone.
"""

from collections.abc import Iterator

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_SENT_FOR = frozenset({b"x-forwarded-for", b"x-real-ip", b"forwarded"})


class Forwarded:
    """Reads X-Forwarded-For, -Proto, -Host and -Prefix; of several values, the last: the nearest proxy's.

    `root_path` is the path that a proxy serves us below, where it doesn't say so itself. As ASGI wants it, the
    scope's path has it at its begin, whether the proxy took it away or not; `route_path` is without it.
    """

    def __init__(self, app: ASGIApp, trusted: list[str], root_path: str) -> None:
        self._app = app
        self._by_proxy = ProxyHeadersMiddleware(self._behind_proxy, trusted)  # type: ignore[arg-type]
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        if client is not None and client[0] in self._by_proxy.trusted_hosts:
            await self._by_proxy({**scope}, receive, send)  # type: ignore[arg-type]
        else:
            await self._app(_below(scope, self._root_path), receive, send)

    async def _behind_proxy(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = dict(scope["headers"])
        host = said.get(b"x-forwarded-host")
        if host is not None:
            others = [each for each in scope["headers"] if each[0] != b"host"]
            scope = {**scope, "headers": [(b"host", _last(host)), *others]}
        prefix = _last(said.get(b"x-forwarded-prefix", b"")).decode("latin-1")
        await self._app(_below(scope, prefix or self._root_path), receive, send)


def sent_for(scope: Scope) -> Iterator[str]:
    """The addresses for which proxies say to have sent it, whether they are trusted or not."""
    for name, value in scope["headers"]:
        if name in _SENT_FOR:
            yield from (each.strip() for each in value.decode("latin-1").split(","))


def _last(values: bytes) -> bytes:
    return values.rpartition(b",")[2].strip()


def _below(scope: Scope, root_path: str) -> Scope:
    root = "/" + root_path.strip("/") if root_path.strip("/") else ""
    if not root:
        return scope
    path, raw = scope["path"], scope.get("raw_path") or scope["path"].encode()
    if path == root:
        path, raw = f"{path}/", raw + b"/"
    elif not path.startswith(f"{root}/"):
        path, raw = root + path, root.encode() + raw
    return {**scope, "path": path, "raw_path": raw, "root_path": root}
