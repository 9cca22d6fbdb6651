"""Who may ask for what, decided before a route is looked for and a body is read.

Every path needs an API key but those in OPEN, so that a route that is added later can't forget to ask for
one. The scope follows from path and method. While there are no keys, the server belongs to anybody on its
machine, and to nobody else: not to a web page either that is open there.
"""

import ipaddress
from dataclasses import dataclass
from functools import partial
from typing import cast
from uuid import UUID

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from memserver.api.errors import answer
from memserver.api.middleware.budget import charge
from memserver.api.middleware.forwarded import sent_for
from memserver.api.middleware.origin import (
    READING,
    Headers,
    check_content_type,
    is_from_page,
    is_own_name,
    read_headers,
)
from memserver.api.middleware.rate_limit import RateLimit
from memserver.api.pages import ASSETS, CONSOLE, is_looked_for
from memserver.api.paths import route_path
from memserver.errors import (
    Forbidden,
    InvalidApiKey,
    MemserverError,
    MissingApiKey,
    RateLimited,
    RequestTooLarge,
    ServerStarting,
)
from memserver.storage.api_keys import DEFAULT_TENANT
from memserver.wire.keys import Scope as KeyScope
from memserver.wiring.services import Services

READY, METRICS = "/v1/ready", "/metrics"
OPEN = frozenset({"/", "/v1/health", READY, "/openapi.json", "/docs", *ASSETS})
"""Paths that need no key."""
ADMIN = ("/v1/keys", "/v1/tenants", "/v1/operations", "/v1/endpoint", "/v1/reports")
"""Paths, with all below them, that need the scope admin."""
MCP = "/mcp"
"""Where other agents use the memories. What a call changes needs the scope write, which its tool looks at."""
IMPORTS = ("/v1/agents/import", f"{CONSOLE}/agents/import")
"""Whose body is a file that is written to disk, and may be large."""
MAKE_A_KEY = "memserver keys create NAME makes a key."


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is. `key_id` is None while the server has no keys."""

    tenant: str
    scopes: frozenset[KeyScope]
    key_id: UUID | None

    def may(self, scope: KeyScope) -> bool:
        """Whether it has the scope; admin has them all, since it could make itself a key that does."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def operates(self) -> bool:
        return self.tenant == DEFAULT_TENANT and "admin" in self.scopes


ANYBODY = Caller(DEFAULT_TENANT, frozenset({"read", "write", "admin"}), None)


def required_scope(method: str, path: str) -> KeyScope | None:
    """What a key must allow for this request; None: it needs no key."""
    if path in OPEN or is_below(path, CONSOLE) or is_looked_for(path):
        return None
    if path == METRICS or any(is_below(path, root) for root in ADMIN):
        return "admin"
    return "read" if method in READING or path == MCP else "write"


def is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bytes that a request's body may have: of an import, and of every other."""

    usual: int
    imported: int

    def of(self, path: str) -> int:
        return self.imported if path in IMPORTS else self.usual


class BodyLimit:
    """Ends a request whose body turns out to have more bytes than it may."""

    def __init__(self, app: ASGIApp, most_bytes: BodyLimits) -> None:
        self._usual = RequestBodyLimitMiddleware(app, most_bytes.usual)
        self._imported = RequestBodyLimitMiddleware(app, most_bytes.imported)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        imported = scope["type"] == "http" and route_path(scope) in IMPORTS
        await (self._imported if imported else self._usual)(scope, receive, send)


class Access:
    """Lets a request through that may pass, with its Caller in `request.state.caller`."""

    def __init__(
        self,
        app: ASGIApp,
        rate_limit: RateLimit,
        most_bytes: BodyLimits,
        trusted_origins: list[str],
        *,
        open_metrics: bool = False,
    ) -> None:
        self._app = app
        self._open_metrics = open_metrics
        self._rate_limit = rate_limit
        self._most_bytes = most_bytes
        self._trusted_origins = trusted_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            if scope["type"] == "http":
                await self._admit(scope)
        except MemserverError as error:
            await answer(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        headers = read_headers(scope)
        path = route_path(scope)
        wanted = required_scope(scope["method"], path)
        if path == METRICS and self._open_metrics:
            wanted = None
        if path == MCP:
            self._check_origin(scope, headers)
        if path == READY:
            scope.setdefault("state", {})["find_caller"] = partial(
                self._find_caller, scope, headers
            )
        if wanted is not None:
            caller = await self._find_caller(scope, headers)
            if not caller.may(wanted):
                raise Forbidden(
                    f"The API key has not the scope {wanted}.",
                    scope=wanted,
                    hint="Ask with a key that has it.",
                )
            wait = self._rate_limit.take(caller.key_id)
            if wait:
                raise RateLimited(
                    "Too many requests with this API key.",
                    retry_after=wait,
                    hint=f"Ask again in {wait} s.",
                )
            scope.setdefault("state", {})["caller"] = caller
            check_content_type(scope["method"], path, headers)
        most = self._most_bytes.of(path)
        if int(headers.get("content-length", "0")) > most:
            raise too_large(most)

    async def _find_caller(self, scope: Scope, headers: Headers) -> Caller:
        services = cast("Services | None", getattr(scope["app"].state, "services", None))
        if services is None:
            raise ServerStarting
        secret = _bearer(headers)
        if not await services.keys.any(secret):
            self._check_is_local(scope, headers)
            return ANYBODY
        if secret is None:
            raise MissingApiKey(
                "The request has no API key.", hint="Send the header Authorization: Bearer KEY."
            )
        key = await services.keys.find(secret)
        if key is None:
            raise InvalidApiKey("There is no such API key.", hint=MAKE_A_KEY)
        if key.revoked_at is not None:
            raise InvalidApiKey("The API key was revoked.", hint=MAKE_A_KEY)
        if key.expires_at is not None and key.expires_at <= services.deps.clock():
            raise InvalidApiKey("The API key has expired.", hint=MAKE_A_KEY)
        await charge(services, key, scope["method"], route_path(scope))
        return Caller(key.tenant, frozenset(key.scopes), key.id)

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """No web page may speak MCP but those of the settings and our own: the protocol wants that."""
        if "*" not in self._trusted_origins and is_from_page(scope, headers, self._trusted_origins):
            raise Forbidden(
                "This web page may not speak MCP with the server.",
                hint="MEMSERVER_CORS_ORIGINS names those that may.",
            )

    def _check_is_local(self, scope: Scope, headers: Headers) -> None:
        """Without keys only this machine may ask, and no web page in its browser that isn't named by itself."""
        client = scope.get("client")
        if not all(map(_is_loopback, [*(client or ())[:1], *sent_for(scope)])):
            raise Forbidden(
                "The server has no API keys, so it answers only on its own machine.",
                hint=MAKE_A_KEY,
            )
        if not is_own_name(scope, headers):
            raise Forbidden(
                "The server has no API keys, so it can be asked only under a local name and its own port.",
                hint=f"Say localhost or 127.0.0.1, with the port. {MAKE_A_KEY}",
            )
        if is_from_page(scope, headers, self._trusted_origins):
            raise Forbidden(
                "The server has no API keys, so no other server's web page can ask it.",
                hint=f"MEMSERVER_CORS_ORIGINS names those that may, each by itself. {MAKE_A_KEY}",
            )


def too_large(most: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"The request's body is larger than {most} bytes.",
        hint="Send it in parts, or raise MEMSERVER_REQUEST_MAX_BYTES (of an import: MEMSERVER_IMPORT_MAX_BYTES).",
    )


def _bearer(headers: Headers) -> str | None:
    kind, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() or None if kind.lower() == "bearer" else None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in {"", "localhost"}  # a socket in the file system, or a test's client
