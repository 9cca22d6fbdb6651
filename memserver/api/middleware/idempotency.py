"""A request that is repeated with the same Idempotency-Key gets the first answer, for every POST route.

A route that takes the header itself is left alone: what it stores has the key (a message's turn). For all
others what the handler writes and the answer's record are one transaction. So a handler must not wait for what
another task makes of its writes; one that has to takes the header itself.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from re import Pattern
from typing import TYPE_CHECKING, cast

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memserver.api.errors import answer
from memserver.api.paths import route_path
from memserver.errors import DatabaseError, InvalidInput, MemserverError
from memserver.storage.idempotency import Claim, IdempotencyKeys, KeptAnswer
from memserver.text import clean

if TYPE_CHECKING:
    from memserver.wiring.services import Services

HEADER = "Idempotency-Key"
LONGEST_KEY = 200
LARGEST_REWRITTEN = 100_000
REPLAYED = "Idempotent-Replayed"
"""The header of an answer that was given before."""
KEPT = frozenset({404, 409})
"""Failures that are kept beside successes. All others left nothing behind, and may end otherwise when the
request is repeated, or will end the same way by themselves: their key is as if it had not been used."""
_INSTEAD = "kept_instead"


def keep_instead(request: Request, body: bytes) -> None:
    """Have another body kept than the one that is answered: one without what may be shown only once."""
    setattr(request.state, _INSTEAD, body)


class Idempotency:
    """Answers repeated requests; stands directly around the application's own routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._routes: list[tuple[Pattern[str], bool]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._concerns(scope):
            await self._app(scope, receive, send)
            return
        try:
            response = await self._once(Request(scope, receive))
        except (MemserverError, HTTPException) as error:  # HTTPException: the body is too large
            response = answer(error)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    def _concerns(self, scope: Scope) -> bool:
        return (
            scope["type"] == "http"
            and scope["method"] == "POST"
            and HEADER in Headers(scope=scope)
            and "caller" in scope.get("state", {})
            and self._leaves_it_to_us(scope)
        )

    def _leaves_it_to_us(self, scope: Scope) -> bool:
        """Whether there is such a route, and it doesn't take the header itself."""
        if self._routes is None:
            self._routes = list(_post_routes(scope["app"]))
        matching = (ours for pattern, ours in self._routes if pattern.match(route_path(scope)))
        return next(matching, False)

    async def _once(self, request: Request) -> Response:
        services = cast("Services", request.app.state.services)
        key = clean(request.headers[HEADER])
        if not 1 <= len(key) <= LONGEST_KEY:
            raise InvalidInput(f"{HEADER}: it must have 1 to {LONGEST_KEY} characters.")
        body = await request.body()
        tenant: str = request.state.caller.tenant
        keys = services.idempotency
        claim = await keys.claim(tenant, key, _fingerprint(request, body))
        if isinstance(claim, KeptAnswer):
            return replay(claim)
        settled = False
        try:
            async with keys.held(claim), services.database.one_commit() as whole:
                given = await self._run(request, body)
                if not given.is_settled:
                    return given.response()
                if given.status >= 400:
                    await whole.roll_back()
                async with whole.part(tenant) as tx:
                    await keys.record(tx, claim, given.to_keep(request))
                await whole.commit()
                settled = True
                return given.response()
        finally:
            if not settled:
                await _release(keys, claim)

    async def _run(self, request: Request, body: bytes) -> "_Given":
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return pending.pop() if pending else await request.receive()

        given = _Given()
        await self._app(request.scope, receive, given.take)
        return given


@dataclass
class _Given:
    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    @property
    def is_settled(self) -> bool:
        return self.status < 300 or self.status in KEPT

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message["headers"])
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")

    def response(self) -> Response:
        response = Response(bytes(self.body), self.status)
        response.raw_headers = self.headers
        return response

    def to_keep(self, request: Request) -> KeptAnswer:
        content_type = Headers(raw=self.headers).get("content-type", "")
        body = getattr(request.state, _INSTEAD, None) or bytes(self.body)
        return KeptAnswer(self.status, content_type, body)


def _post_routes(app: FastAPI) -> Iterator[tuple[Pattern[str], bool]]:
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute) and "POST" in (route.methods or ()):
            taken = (parameter.alias for parameter in route.dependant.header_params)
            yield route.path_regex, HEADER not in taken


def _fingerprint(request: Request, body: bytes) -> bytes:
    """What makes two requests the same: where they go and what they say; JSON, unless it is large, however it is written."""
    with suppress(ValueError, RecursionError):
        if len(body) <= LARGEST_REWRITTEN:
            body = json.dumps(json.loads(body), sort_keys=True).encode()
    where = f"{request.url.path}?{request.url.query}\0".encode()
    return hashlib.sha256(where + body).digest()


def replay(kept: KeptAnswer) -> Response:
    response = Response(kept.body, kept.status, {REPLAYED: "true"})
    if kept.content_type:
        response.headers["content-type"] = kept.content_type
    if kept.status == 204:
        del response.headers["content-length"]
    return response


async def _release(keys: IdempotencyKeys, claim: Claim) -> None:
    """Let a repetition run at once; where that fails it runs when the claim's time is over."""
    with suppress(DatabaseError):
        await keys.release(claim)
